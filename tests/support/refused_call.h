// A sandbox around this process and its children, as in containers: from now on the kernel refuses one system call.
#pragma once

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace gloo_bypass::test {

// `argument` and `value`: refuses the call only if its argument of that number (from 0) is `value`, in its lower 32
// bits. Cannot be undone. False: this kernel has no such filters.
struct RefusedArgument {
  unsigned number = 0;
  std::uint32_t value = 0;
};
inline bool refuseCall(long call, int error, std::optional<RefusedArgument> argument = {}) {
  const auto load = [](std::size_t offset) {
    return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
  };
  // A mismatch jumps to the last instruction; the jump's length counts from the next instruction.
  const auto unless = [](std::uint32_t value, std::uint8_t toTheLast) {
    return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, toTheLast);
  };
  const sock_filter refuse BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error));
  const sock_filter allow BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const RefusedArgument wanted = argument.value_or(RefusedArgument{});
  std::array all{load(offsetof(seccomp_data, nr)),
                 unless(static_cast<std::uint32_t>(call), 3),
                 load(offsetof(seccomp_data, args) + wanted.number * sizeof(std::uint64_t)),
                 unless(wanted.value, 1),
                 refuse,
                 allow};
  std::array plain{load(offsetof(seccomp_data, nr)), unless(static_cast<std::uint32_t>(call), 1), refuse, allow};
  const sock_fprog program = argument ? sock_fprog{all.size(), all.data()} : sock_fprog{plain.size(), plain.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace gloo_bypass::test
