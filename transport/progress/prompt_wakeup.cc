#include "transport/progress/prompt_wakeup.h"

#include <linux/sched.h>
#include <linux/sched/types.h>  // not <sched.h>: both define sched_param
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace gloo_bypass {
namespace {

constexpr std::uint64_t kShortestSliceNs = 100'000;  // the kernel's lower bound

struct Changed {
  bool active = false;
  bool refused = false;
  sched_attr before{};
};
thread_local Changed changed;

}  // namespace

void PromptWakeup::request() noexcept {
  if (changed.active || changed.refused) return;
  changed.before.size = sizeof(changed.before);
  if (syscall(SYS_sched_getattr, 0, &changed.before, sizeof(changed.before), 0) != 0 ||
      (changed.before.sched_policy != SCHED_NORMAL && changed.before.sched_policy != SCHED_BATCH)) {
    changed.refused = true;  // a real-time thread is woken promptly anyway
    return;
  }
  sched_attr attributes = changed.before;
  attributes.sched_runtime = kShortestSliceNs;
  changed.active = syscall(SYS_sched_setattr, 0, &attributes, 0) == 0;
  changed.refused = !changed.active;
}

void PromptWakeup::restore() noexcept {
  if (!changed.active) return;
  changed.active = false;
  (void)syscall(SYS_sched_setattr, 0, &changed.before, 0);
}

}  // namespace gloo_bypass
