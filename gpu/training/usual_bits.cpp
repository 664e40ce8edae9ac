#include "gpu/training/usual_bits.hpp"

#include <stdexcept>
#include <string>

namespace parcae {

void require_usual_bits(const tensor_device& on, const executor_options& options) {
  if (on.nothing_did_without_memory())
    return;
  const auto why = on.of().facts().place + " had no memory for what LibTorch asked, and LibTorch went on without, "
                                           "perhaps with other bits, and will again: the job needs more memory there";
  if (options.on_spoilt)
    options.on_spoilt(why);
  throw std::runtime_error(why);
}

} // namespace parcae
