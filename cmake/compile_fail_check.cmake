# The two builds of one compile_fail case: cmake -DCOMPILER= -DFILE= -DINCLUDE= -P this.
set(flags -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I${INCLUDE})

file(STRINGS ${FILE} refused REGEX "^// Refused: ")
string(REGEX REPLACE "^// Refused: " "" refused "${refused}")
if(refused STREQUAL "")
  message(FATAL_ERROR "${FILE}: no line \"// Refused: REGEX\"")
endif()

execute_process(COMMAND ${COMPILER} ${flags} ${FILE} RESULT_VARIABLE good ERROR_VARIABLE said)
if(NOT good EQUAL 0)
  message(FATAL_ERROR "${FILE}: the good half does not compile:\n${said}")
endif()
execute_process(COMMAND ${COMPILER} ${flags} -DLODE_MUST_FAIL ${FILE} RESULT_VARIABLE bad
                ERROR_VARIABLE said)
if(bad EQUAL 0)
  message(FATAL_ERROR "${FILE}: the misuse compiles")
endif()
if(NOT said MATCHES "${refused}")
  message(FATAL_ERROR "${FILE}: refused for another reason than \"${refused}\":\n${said}")
endif()
