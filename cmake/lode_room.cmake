# A room is a folder of lode/. lode_room(NAME) makes the library lode_NAME from its sources and, for
# developers, NAME_test from its *_test.cc and NAME_bench from its *_bench.cc. The link edges are the
# includes themselves: a room links to the rooms whose headers it names (tools/check_floors.py sees to
# it that they all look down).

# Every room of tools/floors.txt in which something lives, lowest floor first.
function(lode_rooms)
  file(STRINGS ${PROJECT_SOURCE_DIR}/tools/floors.txt lines REGEX "^[0-9]")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS tools/floors.txt)
  foreach(line IN LISTS lines)
    string(REPLACE " " ";" rooms "${line}")
    list(POP_FRONT rooms)
    foreach(room IN LISTS rooms)
      if(EXISTS ${PROJECT_SOURCE_DIR}/lode/${room}/)
        lode_room(${room})
      endif()
    endforeach()
  endforeach()
endfunction()

# The rooms whose headers the files name, themselves or through headers of tests/ and tools/.
function(lode_rooms_included out)
  set(rooms "")
  foreach(file IN LISTS ARGN)
    file(STRINGS ${file} lines REGEX "^#include \"(tests|tools)/[^\"]+\"")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" header "${line}")
      if(EXISTS ${PROJECT_SOURCE_DIR}/${header})
        lode_rooms_included(more ${PROJECT_SOURCE_DIR}/${header})
        list(APPEND rooms ${more})
      endif()
    endforeach()
    file(STRINGS ${file} lines REGEX "^#include \"lode/[a-z]+/")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#include \"lode/([a-z]+)/.*" "\\1" room "${line}")
      list(APPEND rooms ${room})
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES rooms)
  set(${out} ${rooms} PARENT_SCOPE)
endfunction()

function(lode_link_rooms target scope)
  foreach(room IN LISTS ARGN)
    if(NOT "lode_${room}" STREQUAL "${target}")
      target_link_libraries(${target} ${scope} lode_${room})
    endif()
  endforeach()
endfunction()

# lode_test(NAME FILES...): a GoogleTest program that links the rooms it includes.
function(lode_test name)
  add_executable(${name} ${ARGN})
  lode_rooms_included(rooms ${ARGN})
  lode_link_rooms(${name} PRIVATE ${rooms})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE lode_warnings GTest::gmock_main)
  target_compile_options(${name} PRIVATE -O1)  # a fifth less to wait for; what is tested has its own
  target_compile_definitions(${name} PRIVATE LODE_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden"
                                             LODE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  list(LENGTH ARGN num_files)
  lode_precompile(${name} ${num_files} <gmock/gmock.h> <gtest/gtest.h> ${LODE_COMMON_HEADERS})
  add_test(NAME ${name} COMMAND ${name})
endfunction()

# lode_bench(NAME FILES...): a Google Benchmark program that links the rooms it includes.
function(lode_bench name)
  add_executable(${name} ${ARGN})
  lode_rooms_included(rooms ${ARGN})
  lode_link_rooms(${name} PRIVATE ${rooms})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE lode_warnings benchmark::benchmark_main)
endfunction()

function(lode_room name)
  set(dir ${PROJECT_SOURCE_DIR}/lode/${name})
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${dir}/*.h)
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${dir}/*.cc)
  set(tests ${all})
  set(benches ${all})
  set(sources ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(_(test|bench)|/main)\\.cc$")
  # A room that lives only in a folder of its own for tests or for main.cc is not a library yet.
  if(NOT sources AND NOT headers)
    return()
  endif()

  add_library(lode_${name} STATIC ${sources} ${headers})
  add_library(lode::${name} ALIAS lode_${name})
  set_target_properties(lode_${name} PROPERTIES LINKER_LANGUAGE CXX EXPORT_NAME ${name})
  target_include_directories(lode_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                 $<INSTALL_INTERFACE:include>)
  target_link_libraries(lode_${name} PRIVATE $<BUILD_INTERFACE:lode_warnings>)
  lode_rooms_included(rooms ${sources} ${headers})
  lode_link_rooms(lode_${name} PUBLIC ${rooms})
  set_property(GLOBAL APPEND PROPERTY LODE_ROOMS ${name})
  # Files of kernels have instruction sets of their own, which no precompiled header can serve.
  if(base IN_LIST rooms AND NOT name STREQUAL kernels)
    list(LENGTH sources num_files)
    lode_precompile(lode_${name} ${num_files} ${LODE_COMMON_HEADERS})
  endif()

  if(LODE_DEVELOPER AND tests)
    lode_test(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE lode_${name})
  endif()
  if(LODE_DEVELOPER AND benches)
    lode_bench(${name}_bench ${benches})
    target_link_libraries(${name}_bench PRIVATE lode_${name})
  endif()
endfunction()

# lode_isa(FLAGS FILES...): the instruction set of single files of the kernels room, where it differs
# from that of their folder.
function(lode_isa flags)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY lode_kernels
                              PROPERTIES COMPILE_OPTIONS "${flags}")
endfunction()

# The folders of lode/kernels/ that are named for an instruction set, and what their files may use.
function(lode_isa_folders)
  if(NOT TARGET lode_kernels)
    return()
  endif()
  set(avx2 -mavx2 -mfma -mf16c)
  # The same lists stand in lode/kernels/cpu.cc, which asks the machine for each of them.
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx512vbmi
      -mprefer-vector-width=512)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12's own header makes "undefined" registers by reading an uninitialised one.
    list(APPEND avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  target_compile_options(lode_kernels PRIVATE -fno-exceptions)
  foreach(isa IN ITEMS avx2 avx512)
    file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/lode/kernels/${isa}/*.cc)
    list(FILTER files EXCLUDE REGEX "_(test|bench)\\.cc$")
    foreach(file IN LISTS files)
      get_source_file_property(own ${file} TARGET_DIRECTORY lode_kernels COMPILE_OPTIONS)
      if(NOT own)
        lode_isa("${${isa}}" ${file})
      endif()
    endforeach()
  endforeach()
endfunction()
