#include "runtime/process/standard_streams.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace parcae {

void hold_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0)
      (void)::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY); // the lowest number that is free
}

} // namespace parcae
