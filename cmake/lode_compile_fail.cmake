# compile_fail(FILE): a test that builds FILE twice. As it is it must compile; with LODE_MUST_FAIL it
# must be refused, with a message that matches the regular expression on its line "// Refused: ...".
# So a misuse cannot be refused for a reason other than its own, and the test cannot rot.
function(compile_fail file)
  cmake_path(GET file STEM stem)
  add_test(NAME compile_fail.${stem}
           COMMAND ${CMAKE_COMMAND} -DCOMPILER=${CMAKE_CXX_COMPILER} -DFILE=${file}
                   -DINCLUDE=${PROJECT_SOURCE_DIR}
                   -P ${PROJECT_SOURCE_DIR}/cmake/compile_fail_check.cmake)
  set_tests_properties(compile_fail.${stem} PROPERTIES LABELS compile_fail)
endfunction()

file(GLOB cases CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/compile_fail/*.cc)
foreach(case IN LISTS cases)
  compile_fail(${case})
endforeach()
