// Records frames and reads them back with libpcap; a disk that is full or too slow.
#include "transport/capture/frame_recorder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <optional>

#include "tests/support/temporary_folder.h"
#include "tests/tools/capture/capture_builder.h"
#include "tools/capture/capture_file.h"

namespace gloo_bypass::capture {
namespace {

using test::Octets;

RecorderOptions optionsFor(std::uint32_t snapLength) {
  return {.interfaces = {{"r0", "memif r0.sock"}, {"r1", ""}}, .snapLength = snapLength, .application = "test"};
}

std::unique_ptr<FrameRecorder> recorderTo(const std::string& path, std::uint32_t snapLength = 128) {
  auto recorder = FrameRecorder::create(path, optionsFor(snapLength));
  EXPECT_TRUE(recorder.ok()) << (recorder.ok() ? "" : recorder.error().message);
  return recorder.ok() ? std::move(recorder).value() : nullptr;
}

std::span<const std::byte> spanOf(const Octets& bytes) { return std::as_bytes(std::span(bytes)); }

struct Read {
  std::vector<std::uint64_t> lengths;
  std::optional<CaptureFault> fault;
};

Read readAll(const std::string& path) {
  auto file = CaptureFile::open(path, "");
  EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
  Read read;
  while (file.ok()) {
    const auto frame = file.value().next();
    if (!frame) break;
    read.lengths.push_back(frame->originalLength);
  }
  if (file.ok()) read.fault = file.value().fault();
  return read;
}

// Whoever knows a session's id can end it, so only the owner may read the file.
TEST(FrameRecorder, Capture_IsItsOwnersAlone) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/own.pcapng";
  ASSERT_TRUE(recorderTo(path));
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(path).permissions(), perms::owner_read | perms::owner_write);
}

TEST(FrameRecorder, Frames_AreReadBackWithTimeLengthAndBytes) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/a.pcapng";
  const auto recorder = recorderTo(path);
  const Octets shorter(61, 7), longer(1'500, 9);
  recorder->record(0, UnixTime(1'700'000'000'123'456'789), spanOf(shorter));
  recorder->record(1, UnixTime(1'700'000'000'123'456'790), spanOf(longer));
  ASSERT_TRUE(recorder->finish(UnixTime(1'700'000'001'000'000'000)).ok());
  auto file = CaptureFile::open(path, "");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file.value().snapLength(), 128u);
  auto frame = file.value().next();
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->time.count(), 1'700'000'000'123'456'789);
  EXPECT_EQ(frame->bytes.size(), 61u);
  EXPECT_EQ(std::to_integer<int>(frame->bytes[60]), 7);
  frame = file.value().next();
  EXPECT_EQ(frame->bytes.size(), 128u);
  EXPECT_EQ(frame->originalLength, 1'500u);
  EXPECT_FALSE(file.value().next().has_value());
  EXPECT_FALSE(file.value().fault().has_value());
  EXPECT_EQ(recorder->counters().frames, 2u);
  EXPECT_EQ(recorder->counters().lost, 0u);
}

TEST(FrameRecorder, SeveralChunks_NoneIsMissingOrOutOfOrder) {
  const TemporaryFolder folder;
  const auto recorder = recorderTo(folder.path + "/a.pcapng", 0);
  std::uint64_t kept = 0;
  for (std::size_t i = 0; i < 3'000; ++i)
    recorder->record(i % 2, UnixTime(static_cast<std::int64_t>(i)), spanOf(Octets(1'000 + i)));
  ASSERT_TRUE(recorder->finish(UnixTime(0)).ok());
  const Read read = readAll(folder.path + "/a.pcapng");
  EXPECT_FALSE(read.fault.has_value());
  kept = recorder->counters().frames;
  ASSERT_EQ(read.lengths.size(), kept);
  for (std::size_t i = 0; i < kept; ++i) ASSERT_EQ(read.lengths[i], 1'000 + i);
}

TEST(FrameRecorder, FewFrames_AreInTheFileWhileItGrows) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/a.pcapng";
  const auto recorder = recorderTo(path);
  const auto before = std::filesystem::file_size(path);
  recorder->record(0, UnixTime(1), spanOf(Octets(60)));
  for (int i = 0; i < 1'000 && std::filesystem::file_size(path) == before; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(readAll(path).lengths.size(), 1u);
}

TEST(FrameRecorder, WriterThatWaits_FramesAreLostAndCounted) {
  std::array<int, 2> ends;
  ASSERT_EQ(::pipe(ends.data()), 0);
  FileDescriptor readEnd(ends[0]);
  auto created = FrameRecorder::create(FileDescriptor(ends[1]), "pipe", optionsFor(0));
  ASSERT_TRUE(created.ok());
  const auto recorder = std::move(created).value();
  const Octets frame(60'000);
  const std::uint64_t bytes = FrameRecorder::kChunkBytes * FrameRecorder::kChunks;
  const std::uint64_t offered = bytes / frame.size() + 100;
  for (std::uint64_t i = 0; i < offered; ++i) recorder->record(0, UnixTime(1), spanOf(frame));
  EXPECT_GE(recorder->counters().lost, 90u);
  EXPECT_EQ(recorder->counters().frames + recorder->counters().lost, offered);
  EXPECT_GE(recorder->counters().frames * frame.size(), bytes * 9 / 10);
  readEnd.reset();  // ends the waiting write, with EPIPE
  EXPECT_FALSE(recorder->finish(UnixTime(2)).ok());
}

// Limits the size of this process's files.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST(FrameRecorder, DiskThatFills_EndsTheCaptureAndLeavesItReadable) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/a.pcapng";
  const auto recorder = recorderTo(path, 0);
  const FileSizeLimit limit(5 * FrameRecorder::kChunkBytes / 2);
  for (int i = 0; i < 1'000; ++i) recorder->record(0, UnixTime(i), spanOf(Octets(10'000)));
  const Status finished = recorder->finish(UnixTime(0));
  ASSERT_FALSE(finished.ok());
  EXPECT_NE(finished.error().message.find(path), std::string::npos);
  EXPECT_NE(finished.error().message.find("can be read"), std::string::npos);
  const Read read = readAll(path);
  EXPECT_FALSE(read.fault.has_value());
  EXPECT_GT(read.lengths.size(), 200u);  // two chunks
  EXPECT_LT(read.lengths.size(), 263u);
  EXPECT_FALSE(recorder->counters().failure.empty());
  EXPECT_EQ(recorder->counters().frames, read.lengths.size());
  EXPECT_EQ(recorder->counters().frames + recorder->counters().lost, 1'000u);
}

TEST(FrameRecorder, GreatestLength_EndsTheCaptureAfterAWholeBlockWithItsStatistics) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/a.pcapng";
  RecorderOptions options = optionsFor(0);
  options.maxFileBytes = 100'000;
  auto created = FrameRecorder::create(path, options);
  ASSERT_TRUE(created.ok());
  const auto recorder = std::move(created).value();
  for (int i = 0; i < 100; ++i) recorder->record(0, UnixTime(i), spanOf(Octets(10'000)));
  EXPECT_TRUE(recorder->ended());
  const Status finished = recorder->finish(UnixTime(0));
  ASSERT_FALSE(finished.ok());
  EXPECT_NE(finished.error().message.find("100000 bytes"), std::string::npos) << finished.error().message;
  const Read read = readAll(path);
  EXPECT_FALSE(read.fault.has_value());
  EXPECT_EQ(read.lengths.size(), 9u);
  EXPECT_EQ(recorder->counters().frames, 9u);
  EXPECT_EQ(recorder->counters().lost, 91u);
  EXPECT_LE(std::filesystem::file_size(path), options.maxFileBytes);
  EXPECT_EQ(recorder->counters().fileBytes, std::filesystem::file_size(path));
}

TEST(FrameRecorder, FrameInPieces_IsKeptAsOneUpToTheSnapLength) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/a.pcapng";
  const auto recorder = recorderTo(path, 100);
  const Octets first(42, 1), second(30, 2), third(1'000, 3);
  const std::array pieces{spanOf(first), spanOf(second), spanOf(third)};
  recorder->record(1, UnixTime(5), FrameDirection::kSent, pieces);
  recorder->record(1, UnixTime(6), FrameDirection::kReceived, std::span(pieces).first(1), 2'000);
  ASSERT_TRUE(recorder->finish(UnixTime(7)).ok());
  EXPECT_EQ(recorder->counters().bytes, 3'072u);
  auto file = CaptureFile::open(path, "");
  ASSERT_TRUE(file.ok()) << file.error().message;
  auto frame = file.value().next();
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->originalLength, 1'072u);
  ASSERT_EQ(frame->bytes.size(), 100u);
  EXPECT_EQ(std::to_integer<int>(frame->bytes[41]), 1);
  EXPECT_EQ(std::to_integer<int>(frame->bytes[42]), 2);
  EXPECT_EQ(std::to_integer<int>(frame->bytes[71]), 2);
  EXPECT_EQ(std::to_integer<int>(frame->bytes[99]), 3);
  frame = file.value().next();
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->bytes.size(), 42u);
  EXPECT_EQ(frame->originalLength, 2'000u);
  EXPECT_FALSE(file.value().next().has_value());
}

TEST(FrameRecorder, FileThatExistsOrCannotBeMade_IsRefused) {
  const TemporaryFolder folder;
  const std::string path = test::writeFile(folder.path, "there", test::octets("kept"));
  EXPECT_FALSE(FrameRecorder::create(path, optionsFor(0)).ok());
  EXPECT_EQ(contentsOf(path), "kept");
  EXPECT_FALSE(FrameRecorder::create(folder.path + "/none/a", optionsFor(0)).ok());
}

class IgnoredSignals : public ::testing::Environment {
 public:
  void SetUp() override {
    (void)::signal(SIGPIPE, SIG_IGN);
    (void)::signal(SIGXFSZ, SIG_IGN);
  }
};
[[maybe_unused]] const auto* const kIgnoredSignals = ::testing::AddGlobalTestEnvironment(new IgnoredSignals);

}  // namespace
}  // namespace gloo_bypass::capture
