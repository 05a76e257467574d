# Outside libraries, each with its one door (tools/floors.txt and spec: house). Names are Debian's.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
if(LODE_MPI)
  set(MPI_CXX_SKIP_MPICXX ON)  # its C interface is all we call
  find_package(MPI COMPONENTS CXX)
endif()
if(LODE_DEVELOPER)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
  find_package(benchmark REQUIRED)
endif()
