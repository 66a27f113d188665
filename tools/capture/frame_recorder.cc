#include "tools/capture/frame_recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/base/check.h"

namespace gloo_bypass::capture {
namespace {

// The longest that a full chunk waits for the writer: nobody wakes it, since that would cost the owner a system call. With 64 chunks
// that is room for 6 GB/s.
constexpr std::chrono::milliseconds kWriterNap{10};

Error cannotWrite(const std::string& path, const std::string& why) {
  return {ErrorScope::kDevice, ErrorCode::kUnavailable, fmt::format("{}: {}", path, why)};
}

}  // namespace

Result<std::unique_ptr<FrameRecorder>> FrameRecorder::create(const std::string& path, const std::vector<Interface>& interfaces,
                                                             std::uint32_t snapLength, const std::string& application) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file) {
    return cannotWrite(path, errno == EEXIST ? "there is a file of this name: choose another, or remove it" : std::strerror(errno));
  }
  auto recorder = create(std::move(file), path, interfaces, snapLength, application);
  if (!recorder) (void)::unlink(path.c_str());
  return recorder;
}

Result<std::unique_ptr<FrameRecorder>> FrameRecorder::create(FileDescriptor file, const std::string& name,
                                                             const std::vector<Interface>& interfaces, std::uint32_t snapLength,
                                                             const std::string& application) {
  std::string head;
  appendSectionHeader(head, application);
  for (const Interface& each : interfaces) appendInterface(head, each.name, each.description, snapLength);
  std::unique_ptr<FrameRecorder> recorder(new FrameRecorder(name, std::move(file), interfaces.size(), snapLength));
  if (!recorder->writeWhole(std::as_bytes(std::span(head)))) return cannotWrite(name, recorder->failure_);
  recorder->start();
  return recorder;
}

FrameRecorder::~FrameRecorder() { stop(); }

// Signals are the owner's.
void FrameRecorder::start() {
  sigset_t all, before;
  sigfillset(&all);
  (void)::pthread_sigmask(SIG_SETMASK, &all, &before);
  writer_ = std::thread([this] { writeChunks(); });
  (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

FrameRecorder::Chunk* FrameRecorder::roomFor(std::size_t bytes) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    const std::uint64_t current = filled_.load(std::memory_order_relaxed);
    if (current - written_.load(std::memory_order_acquire) >= kChunks) return nullptr;
    Chunk& chunk = chunks_[current % kChunks];
    if (!chunk.bytes) chunk.bytes = std::make_unique_for_overwrite<std::byte[]>(kChunkBytes);
    if (chunk.used + bytes <= kChunkBytes) return &chunk;
    flush();
  }
  return nullptr;
}

void FrameRecorder::record(std::size_t interface, UnixTime time, std::span<const std::byte> frame) {
  GLOO_BYPASS_CHECK(interface < interfaces_.size());
  InterfaceCounters& counters = interfaces_[interface];
  const auto kept = frame.first(snapLength_ == 0 ? frame.size() : std::min<std::size_t>(frame.size(), snapLength_));
  const std::size_t bytes = packetBlockBytes(kept.size());
  Chunk* const chunk = failed_.load(std::memory_order_acquire) ? nullptr : roomFor(bytes);
  if (chunk == nullptr) {
    ++counters.lost;
    return;
  }
  writePacketBlock(chunk->bytes.get() + chunk->used, static_cast<std::uint32_t>(interface), time, kept, frame.size());
  chunk->used += bytes;
  ++counters.frames;
}

void FrameRecorder::flush() {
  const std::uint64_t current = filled_.load(std::memory_order_relaxed);
  if (current - written_.load(std::memory_order_acquire) >= kChunks || chunks_[current % kChunks].used == 0) return;
  filled_.store(current + 1, std::memory_order_release);
}

void FrameRecorder::writeChunks() {
  for (;;) {
    const bool last = stopping_.load(std::memory_order_acquire);  // before the look: what was flushed before it is seen
    const std::uint64_t filled = filled_.load(std::memory_order_acquire);
    std::uint64_t next = written_.load(std::memory_order_relaxed);
    if (next == filled && last) return;
    if (next == filled) std::this_thread::sleep_for(kWriterNap);
    for (; next != filled; ++next) {
      Chunk& chunk = chunks_[next % kChunks];
      if (!failed_.load(std::memory_order_relaxed)) (void)writeWhole({chunk.bytes.get(), chunk.used});
      chunk.used = 0;
      written_.store(next + 1, std::memory_order_release);
    }
  }
}

// On an error the file ends where it ended before.
bool FrameRecorder::writeWhole(std::span<const std::byte> bytes) {
  const std::uint64_t before = fileBytes_.load(std::memory_order_relaxed);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::write(file_.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      failure_ = count == 0 ? "nothing more can be written" : std::strerror(errno);
      if (::ftruncate(file_.get(), static_cast<off_t>(before)) != 0) failure_ += ", and its last block is cut off";
      failed_.store(true, std::memory_order_release);
      return false;
    }
    done += static_cast<std::size_t>(count);
  }
  fileBytes_.store(before + done, std::memory_order_relaxed);
  return true;
}

void FrameRecorder::stop() {
  if (!writer_.joinable()) return;
  // The owner's last chunk finds a place as soon as the writer has made one.
  while (filled_.load(std::memory_order_relaxed) - written_.load(std::memory_order_acquire) >= kChunks) {
    std::this_thread::sleep_for(kWriterNap);
  }
  flush();
  stopping_.store(true, std::memory_order_release);
  writer_.join();
}

Status FrameRecorder::finish(UnixTime now) {
  stop();
  std::string tail;
  for (std::size_t i = 0; i < interfaces_.size(); ++i) {
    appendInterfaceStatistics(tail, static_cast<std::uint32_t>(i), now, interfaces_[i].frames + interfaces_[i].lost, interfaces_[i].lost);
  }
  if (!failed_.load(std::memory_order_acquire)) (void)writeWhole(std::as_bytes(std::span(tail)));
  file_.reset();
  if (failure_.empty()) return {};
  return cannotWrite(path_, fmt::format("the capture ended early: {}; what is there can be read", failure_));
}

RecorderCounters FrameRecorder::counters() const {
  RecorderCounters counters;
  for (const InterfaceCounters& each : interfaces_) {
    counters.frames += each.frames;
    counters.lost += each.lost;
  }
  counters.fileBytes = fileBytes_.load(std::memory_order_relaxed);
  if (failed_.load(std::memory_order_acquire)) counters.failure = failure_;
  return counters;
}

}  // namespace gloo_bypass::capture
