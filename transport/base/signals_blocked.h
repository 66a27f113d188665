// Blocks all signals for the calling thread while this object lives; threads started meanwhile keep them blocked. The
// application's signals belong to the application's threads.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace gloo_bypass {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace gloo_bypass
