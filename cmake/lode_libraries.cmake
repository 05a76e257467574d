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
if(TARGET lode_comm)
  # The file that calls MPI, or the one that says there is none.
  if(MPI_CXX_FOUND)
    lode_use(comm PRIVATE MPI::MPI_CXX)
    set(other no_mpi.cc)
  else()
    set(other mpi_group.cc)
  endif()
  set_source_files_properties(${PROJECT_SOURCE_DIR}/lode/comm/${other} TARGET_DIRECTORY lode_comm
                              PROPERTIES HEADER_FILE_ONLY ON)
endif()
lode_use(io PRIVATE isal crypto)

# Properties of random inputs.
foreach(test IN ITEMS placement_test comm_test)
  if(TARGET ${test})
    target_link_libraries(${test} PRIVATE rapidcheck rapidcheck_gtest)
  endif()
endforeach()
