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

# The library that programs load is optimised as a whole, over its rooms on the data path: a message of 8 bytes goes through
# 200 small functions of them (adr/0018). All else links the same objects as they are.
include(CheckIPOSupported)
check_ipo_supported(RESULT VERBENA_WHOLE OUTPUT ignored LANGUAGES CXX)
if(VERBENA_SANITIZE OR VERBENA_FUZZ OR CMAKE_BUILD_TYPE STREQUAL "Debug" OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(VERBENA_WHOLE OFF)
endif()
set(VERBENA_DATA_PATH base roce engine arena verbs local net wire abi)
set(VERBENA_WHOLE_OPTIONS -flto=auto -ffat-lto-objects)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  # Small structures are cleared by stores: `rep stos`, GCC's choice for them, takes 10 ns however short they are.
  list(APPEND VERBENA_WHOLE_OPTIONS -mmemset-strategy=unrolled_loop:512:noalign,libcall:-1:noalign)
endif()
if(VERBENA_WHOLE)
  add_link_options($<IF:$<BOOL:$<TARGET_PROPERTY:VERBENA_WHOLE>>,-flto=auto,-fno-lto>)
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
