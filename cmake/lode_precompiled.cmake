# Headers that most files include and that take the longest to read are read once a program or room: more
# than half of what a compiler does here is reading them. Not for users, whose build has no tests, and not
# under ThreadSanitizer, whose build sees to it that files include what they use.
option(LODE_PRECOMPILE "Precompile the headers that most files include" ${LODE_DEVELOPER})
set(LODE_COMMON_HEADERS
    <algorithm> <array> <cmath> <cstdint> <cstring> <filesystem> <memory> <optional> <span> <string>
    <string_view> <utility> <vector> <fmt/format.h> <fmt/ranges.h>)

# lode_precompile(TARGET NUM_FILES HEADERS...): where there are files enough to gain from it.
function(lode_precompile target num_files)
  if(LODE_PRECOMPILE AND num_files GREATER 3)
    target_precompile_headers(${target} PRIVATE ${ARGN})
    # For ccache.
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      target_compile_options(${target} PRIVATE -fpch-preprocess)
    else()
      target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
    endif()
  endif()
endfunction()
