# What goes where in which package. A .deb brings only LibTorch's libraries and depends on Debian's others; the tarball is
# the folder that `cmake --install` makes.
list(GET CPACK_INSTALL_CMAKE_PROJECTS 0 build)
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_PACKAGING_INSTALL_PREFIX /)
  set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/depends.cmake)
  set(CPACK_INSTALL_CMAKE_PROJECTS ${build} parcae programs /usr/lib/parcae ${build} parcae system /usr)
else()
  set(CPACK_INSTALL_CMAKE_PROJECTS ${build} parcae programs / ${build} parcae libraries /)
endif()
