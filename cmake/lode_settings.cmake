# Language, warnings, sanitizers, compiler cache.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
find_program(LODE_CCACHE ccache)
if(LODE_CCACHE)
  # What it must overlook to keep what was made with precompiled headers, whose contents it compares.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
                                  ${LODE_CCACHE})
endif()

# Strict floating point everywhere: no contraction that an ISA could choose differently.
add_compile_options(-ffp-contract=off)
if(LODE_SANITIZE)
  add_compile_options(-fsanitize=${LODE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${LODE_SANITIZE})
endif()
if(LODE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

add_library(lode_warnings INTERFACE)
target_compile_options(lode_warnings INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
# g++ 12 follows inlined containers into paths that cannot be taken and warns inside its own library. The
# sanitizers look for the same faults without guessing.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_compile_options(lode_warnings INTERFACE -Wno-array-bounds -Wno-stringop-overflow
                                                 -Wno-stringop-overread -Wno-restrict)
  if(LODE_SANITIZE)
    target_compile_options(lode_warnings INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()
if(LODE_DEVELOPER)
  target_compile_options(lode_warnings INTERFACE -Werror)
endif()
