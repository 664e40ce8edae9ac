# Writes OUTPUT, a source with the commit of SOURCES; "unknown" where there is no GIT, or no history.
set(revision "")
if(GIT)
  execute_process(COMMAND ${GIT} rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCES}
    OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT revision)
  set(revision unknown)
endif()
file(WRITE ${OUTPUT} "extern const char* const parcae_revision;
const char* const parcae_revision = \"${revision}\";
")
