// While it lives, writing to a pipe or socket that nobody reads any more is an error for the calling thread, and not
// the end of the process (SIGPIPE).
#pragma once

#include <pthread.h>
#include <signal.h>

#include <ctime>

namespace gloo_bypass {

class BrokenPipeHeld {
 public:
  BrokenPipeHeld() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGPIPE);
    sigset_t pending;
    wasPending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~BrokenPipeHeld() {
    const timespec now{};
    if (!wasPending_) (void)sigtimedwait(&signal_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BrokenPipeHeld(const BrokenPipeHeld&) = delete;
  BrokenPipeHeld& operator=(const BrokenPipeHeld&) = delete;

 private:
  sigset_t signal_{}, before_{};
  bool wasPending_ = false;
};

}  // namespace gloo_bypass
