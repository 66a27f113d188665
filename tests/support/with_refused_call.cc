// with_refused_call CALL ERROR COMMAND...: runs COMMAND while the kernel refuses CALL, a number, with the error number
// ERROR.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/support/refused_call.h"

int main(int count, char** words) {
  if (count < 4) {
    std::fprintf(stderr, "use: with_refused_call CALL ERROR COMMAND...\n");
    return 2;
  }
  if (!gloo_bypass::test::refuseCall(std::atol(words[1]), std::atoi(words[2]))) {
    std::perror("with_refused_call: no filter");
    return 77;
  }
  ::execvp(words[3], words + 3);
  std::perror(words[3]);
  return 2;
}
