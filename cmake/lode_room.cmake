# A room is a folder of lode/. lode_room(NAME) makes the library lode_NAME from its sources and, for
# developers, NAME_test from its *_test.cc and NAME_bench from its *_bench.cc. The link edges are the
# includes themselves: a room links to the rooms whose headers it names (tools/check_floors.py sees to
# it that they all look down).

function(lode_rooms_included out)
  set(rooms "")
  foreach(file IN LISTS ARGN)
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

function(lode_room name)
  set(dir ${PROJECT_SOURCE_DIR}/lode/${name})
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${dir}/*.h)
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${dir}/*.cc)
  set(tests ${all})
  set(benches ${all})
  set(sources ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|bench)\\.cc$")

  if(NOT sources AND NOT headers)
    return()  # nothing lives here yet
  endif()

  add_library(lode_${name} STATIC ${sources} ${headers})
  add_library(lode::${name} ALIAS lode_${name})
  set_target_properties(lode_${name} PROPERTIES LINKER_LANGUAGE CXX EXPORT_NAME ${name})
  target_include_directories(lode_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                 $<INSTALL_INTERFACE:include>)
  target_link_libraries(lode_${name} PRIVATE $<BUILD_INTERFACE:lode_warnings>)
  lode_rooms_included(rooms ${sources} ${headers})
  lode_link_rooms(lode_${name} PUBLIC ${rooms})
  install(TARGETS lode_${name} EXPORT lode-targets ARCHIVE DESTINATION lib)

  if(LODE_DEVELOPER AND tests)
    add_executable(${name}_test ${tests})
    lode_rooms_included(rooms ${tests})
    lode_link_rooms(${name}_test PRIVATE ${name} ${rooms})
    target_link_libraries(${name}_test PRIVATE lode_warnings GTest::gmock_main)
    target_compile_definitions(${name}_test PRIVATE LODE_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden"
                                                    LODE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    add_test(NAME ${name} COMMAND ${name}_test)
  endif()
  if(LODE_DEVELOPER AND benches)
    add_executable(${name}_bench ${benches})
    lode_rooms_included(rooms ${benches})
    lode_link_rooms(${name}_bench PRIVATE ${name} ${rooms})
    target_link_libraries(${name}_bench PRIVATE lode_warnings benchmark::benchmark_main)
  endif()
endfunction()

# lode_isa(FLAGS... FILES...) is written out per file in the kernels room: lode_isa("-mavx2;-mfma" files)
function(lode_isa flags)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY lode_kernels
                              PROPERTIES COMPILE_OPTIONS "${flags}")
endfunction()
