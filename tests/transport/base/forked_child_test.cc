#include "transport/base/forked_child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>

#include "transport/base/file_descriptor.h"

namespace gloo_bypass {
namespace {

std::array<FileDescriptor, 2> socketPair() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

bool seesTheEnd(const FileDescriptor& fd) {
  char byte;
  return ::recv(fd.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

// A child that has closed its inherited descriptors, and lives until this object goes.
class Child {
 public:
  Child() {
    int ends[2] = {-1, -1}, ready[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC) | ::pipe2(ready, O_CLOEXEC), 0);
    child_ = ::fork();
    if (child_ == 0) {
      forked_child::giveFree();
      ::close(ends[1]);
      char byte = 0;
      (void)!::write(ready[1], &byte, 1);
      (void)!::read(ends[0], &byte, 1);
      ::_exit(0);
    }
    alive_.reset(ends[1]);
    FileDescriptor(ends[0]).reset();
    FileDescriptor(ready[1]).reset();
    const FileDescriptor given(ready[0]);
    char byte;
    EXPECT_EQ(::read(given.get(), &byte, 1), 1);
  }
  ~Child() {
    alive_.reset();
    (void)::waitpid(child_, nullptr, 0);
  }

 private:
  pid_t child_ = -1;
  FileDescriptor alive_;
};

TEST(ForkedChild, LeftDescriptor_PeerSeesItsEndWhileTheChildLives) {
  auto [ours, peers] = socketPair();
  FileDescriptor left = std::move(ours).leftByForkedChildren();
  const Child child;
  EXPECT_FALSE(seesTheEnd(peers));
  left.reset();
  EXPECT_TRUE(seesTheEnd(peers));
}

TEST(ForkedChild, OtherDescriptors_StayWithTheChild) {
  auto [ours, peers] = socketPair();
  auto [reused, unused] = socketPair();
  // A later owner of the number must not be affected.
  const int number = reused.get();
  FileDescriptor left = std::move(reused).leftByForkedChildren();
  left.reset();
  ASSERT_EQ(::dup3(ours.get(), number, O_CLOEXEC), number);
  FileDescriptor again(number);
  const Child child;
  ours.reset();
  again.reset();
  EXPECT_FALSE(seesTheEnd(peers));
}

TEST(ForkedChild, NumbersGivenFree_AreNotReused) {
  auto [ours, peers] = socketPair();
  FileDescriptor left = std::move(ours).leftByForkedChildren();
  const pid_t child = ::fork();
  if (child == 0) {
    forked_child::giveFree();
    const int opened = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    left.reset();  // as a destructor of the parent's objects
    ::_exit(::fcntl(opened, F_GETFD) < 0 ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gloo_bypass
