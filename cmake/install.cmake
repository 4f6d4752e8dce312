# bin/verbena finds ../lib/verbena, the fronts find the core beside them: any prefix will do.
install(TARGETS verbena RUNTIME DESTINATION bin)
install(TARGETS verbena-agent verbena-keeper RUNTIME DESTINATION lib/verbena)
install(TARGETS verbena_core verbena_front_ibverbs verbena_front_rdmacm verbena-view LIBRARY DESTINATION lib/verbena)
configure_file(${CMAKE_CURRENT_LIST_DIR}/verbena.pc.in ${CMAKE_BINARY_DIR}/verbena.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/verbena.pc DESTINATION lib/pkgconfig)
