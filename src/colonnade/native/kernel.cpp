#include "kernel.h"

#include <cstdlib>
#include <stdexcept>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace colonnade {
namespace {

bool runs_here(const std::string& feature) {
  const auto features = cpu_features();
  const auto found = features.find(feature);
  return found != features.end() && found->second;
}

// Fastest first; the last is there to test the one it stands for.
std::vector<const Kernel*> runnable_kernels() {
  std::vector<const Kernel*> kernels;
#if defined(__x86_64__)
  if (runs_here("avx512ifma")) kernels.push_back(&ifma_kernel());
  if (runs_here("avx2") && runs_here("fma")) kernels.push_back(&avx2_kernel());
  if (runs_here("adx") && runs_here("bmi2")) kernels.push_back(&adx_kernel());
#endif
  kernels.push_back(&portable_kernel());
  kernels.push_back(&ifma_emulated_kernel());
  return kernels;
}

const Kernel& choose() {
  const char* wanted = std::getenv("COLONNADE_KERNEL");
  if (wanted != nullptr && *wanted != '\0') return kernel_by_name(wanted);
  return *runnable_kernels().front();
}

}  // namespace

std::map<std::string, bool> cpu_features() {
  std::map<std::string, bool> features{
      {"adx", false}, {"avx2", false}, {"avx512ifma", false}, {"bmi2", false}, {"fma", false}};
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    features["bmi2"] = (b >> 8) & 1;
    features["adx"] = (b >> 19) & 1;
    // These also ask whether the operating system saves the wide registers.
    features["avx2"] = __builtin_cpu_supports("avx2") != 0;
    features["fma"] = __builtin_cpu_supports("fma") != 0;
    features["avx512ifma"] = __builtin_cpu_supports("avx512f") != 0 &&
                             __builtin_cpu_supports("avx512ifma") != 0;
  }
#endif
  return features;
}

const Kernel& kernel_by_name(const std::string& name) {
  std::string names;
  for (const Kernel* kernel : runnable_kernels()) {
    if (name == kernel->name) return *kernel;
    names += (names.empty() ? "" : ", ") + std::string(kernel->name);
  }
  throw std::invalid_argument("got kernel '" + name + "'; want one this processor runs: " + names +
                              "; set COLONNADE_KERNEL to one of them or leave it unset");
}

const Kernel& selected_kernel() {
  static const Kernel& kernel = choose();
  return kernel;
}

const Kernel& one_lane_kernel() {
  for (const Kernel* kernel : runnable_kernels()) {
    if (kernel->lanes == 1) return *kernel;
  }
  return portable_kernel();
}

}  // namespace colonnade
