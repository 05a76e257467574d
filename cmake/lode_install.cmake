# What `cmake --install` leaves behind: the command, headers, the rooms as static libraries, and
# find_package(lode) with one target, lode::lode. The command line's own room stays at home.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

get_property(rooms GLOBAL PROPERTY LODE_ROOMS)
list(REMOVE_ITEM rooms cli)
add_library(lode_all INTERFACE)
add_library(lode::lode ALIAS lode_all)
set_target_properties(lode_all PROPERTIES EXPORT_NAME lode)
target_compile_features(lode_all INTERFACE cxx_std_20)
foreach(room IN LISTS rooms)
  target_link_libraries(lode_all INTERFACE lode_${room})
  install(TARGETS lode_${room} EXPORT lode-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()
install(TARGETS lode_all EXPORT lode-targets)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/lode)
install(EXPORT lode-targets NAMESPACE lode:: DESTINATION ${package})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/lode-config.cmake.in
                              ${PROJECT_BINARY_DIR}/lode-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lode-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lode-config.cmake ${PROJECT_BINARY_DIR}/lode-config-version.cmake
        DESTINATION ${package})
install(DIRECTORY lode/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lode
        FILES_MATCHING PATTERN "*.h" PATTERN cli EXCLUDE
        PATTERN "test_*.h" EXCLUDE PATTERN "*_test_support.h" EXCLUDE)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/lode)
