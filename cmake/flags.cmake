# Warnings are errors, everywhere; sanitizers by -DVERBENA_SANITIZE=address|thread.
set(VERBENA_SANITIZE "" CACHE STRING "address (with undefined) or thread")

add_compile_options(-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers
                    -Werror)
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
add_compile_definitions(_GNU_SOURCE VERBENA_VERSION="${PROJECT_VERSION}")

option(VERBENA_FUZZ "Build the fuzzing targets of tests/fuzz; needs clang 19" OFF)
if(VERBENA_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=address,undefined)
endif()

if(VERBENA_SANITIZE STREQUAL "address")
  set(sanitize_flags -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  set(runtime_name libasan.so)
elseif(VERBENA_SANITIZE STREQUAL "thread")
  # It doesn't model fences; what they order here are atomic accesses, which it does.
  set(sanitize_flags -fsanitize=thread -Wno-tsan)
  set(runtime_name libtsan.so)
elseif(VERBENA_SANITIZE)
  message(FATAL_ERROR "VERBENA_SANITIZE is 'address' or 'thread', not '${VERBENA_SANITIZE}'")
endif()

set(VERBENA_SANITIZER_RUNTIME "")
if(VERBENA_SANITIZE)
  add_compile_options(${sanitize_flags})
  add_link_options(${sanitize_flags})
  # An uninstrumented program that loads our libraries needs the runtime first in LD_PRELOAD.
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${runtime_name}
                  OUTPUT_VARIABLE VERBENA_SANITIZER_RUNTIME OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(REAL_PATH ${VERBENA_SANITIZER_RUNTIME} VERBENA_SANITIZER_RUNTIME)
endif()
