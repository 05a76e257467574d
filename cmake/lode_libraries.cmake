# Which room opens which outside library.
function(lode_use room)
  if(TARGET lode_${room})
    target_link_libraries(lode_${room} ${ARGN})
  endif()
endfunction()
lode_use(base PUBLIC fmt::fmt)
# Headers only: whoever links the installed library need not have it.
lode_use(json PRIVATE $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>)
lode_use(parallel PRIVATE Threads::Threads)
lode_use(io PRIVATE uring)
lode_use(text PRIVATE utf8proc)
lode_use(io PRIVATE isal crypto)

# Properties of random inputs.
if(TARGET placement_test)
  target_link_libraries(placement_test PRIVATE rapidcheck rapidcheck_gtest)
endif()
