// A plug-in as the next to last LibTorch's header would have made it. Nothing but its first word may be believed.
struct library {
  const char* build;
  const void* models;
  unsigned long count;
};
extern "C" const library parcae_plugin;
const library parcae_plugin = {"interface 1, torch 2.10.0, libstdc++", nullptr, 1'000'000};
