#include "transport/capture/frame_recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/base/byte_order.h"
#include "transport/base/check.h"
#include "transport/base/signals_blocked.h"

namespace gloo_bypass::capture {
namespace {

// The longest that a frame waits for the writer. The owner does not wake it, since that would cost a system call. With
// 64 chunks this allows 6 GB/s.
constexpr std::chrono::milliseconds kWriterNap{10};
// Reserved for each interface's statistics at the file's end; more than they need.
constexpr std::uint64_t kStatisticsBytes = 64;

std::uint64_t blocksIn(std::span<const std::byte> blocks) {
  std::uint64_t count = 0;
  for (std::size_t at = 0; at < blocks.size(); at += loadLittle<std::uint32_t>(&blocks[at + 4])) ++count;
  return count;
}

Error cannotWrite(const std::string& path, const std::string& why) {
  return {ErrorScope::kDevice, ErrorCode::kUnavailable, fmt::format("{}: {}", path, why)};
}

}  // namespace

Duration unixClockAhead(TimePoint now) {
  timespec time{};
  (void)::clock_gettime(CLOCK_REALTIME, &time);
  return std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec) - now.time_since_epoch();
}

Result<std::unique_ptr<FrameRecorder>> FrameRecorder::create(const std::string& path, const RecorderOptions& options) {
  // Only the owner may read it: the file holds the ids of live sessions, and whoever knows one can end it.
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file) {
    return cannotWrite(
        path, errno == EEXIST ? "there is a file of this name: choose another, or remove it" : std::strerror(errno));
  }
  auto recorder = create(std::move(file), path, options);
  if (!recorder) (void)::unlink(path.c_str());
  return recorder;
}

Result<std::unique_ptr<FrameRecorder>> FrameRecorder::create(FileDescriptor file, const std::string& name,
                                                             const RecorderOptions& options) {
  std::string head;
  appendSectionHeader(head, options.application);
  for (const auto& each : options.interfaces) appendInterface(head, each.name, each.description, options.snapLength);
  std::unique_ptr<FrameRecorder> recorder(new FrameRecorder(name, std::move(file), options));
  if (!recorder->writeWhole(std::as_bytes(std::span(head)))) return cannotWrite(name, recorder->failure_);
  recorder->recorded_ = head.size();
  recorder->start();
  return recorder;
}

FrameRecorder::~FrameRecorder() { stop(); }

void FrameRecorder::start() {
  const SignalsBlocked blocked;  // signals belong to the owner's threads
  writer_ = std::thread([this] { writeChunks(); });
}

FrameRecorder::Chunk* FrameRecorder::roomFor(std::size_t bytes) {
  if (ended()) return nullptr;
  if (options_.maxFileBytes != 0 && recorded_ + bytes + kStatisticsBytes * interfaces_.size() > options_.maxFileBytes) {
    tooLong_ = true;
    return nullptr;
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    const std::uint64_t current = filled_.load(std::memory_order_relaxed);
    if (current - written_.load(std::memory_order_acquire) >= kChunks) return nullptr;
    Chunk& chunk = chunks_[current % kChunks];
    if (!chunk.bytes) chunk.bytes = std::make_unique_for_overwrite<std::byte[]>(kChunkBytes);
    if (chunk.used.load(std::memory_order_relaxed) + bytes <= kChunkBytes) return &chunk;
    filled_.store(current + 1, std::memory_order_release);
  }
  return nullptr;
}

void FrameRecorder::record(std::size_t interface, UnixTime time, FrameDirection direction,
                           std::span<const std::span<const std::byte>> pieces, std::size_t wholeBytes) {
  GLOO_BYPASS_CHECK(interface < interfaces_.size());
  std::size_t given = 0;
  for (const auto& piece : pieces) given += piece.size();
  const std::size_t kept = options_.snapLength == 0 ? given : std::min<std::size_t>(given, options_.snapLength);
  const PacketBlock block{static_cast<std::uint32_t>(interface), time, direction, kept, std::max(given, wholeBytes)};
  Chunk* const chunk = roomFor(block.bytes());
  if (chunk == nullptr) {
    ++interfaces_[interface].lost;
    return;
  }
  const std::size_t used = chunk->used.load(std::memory_order_relaxed);
  std::byte* const to = chunk->bytes.get() + used;
  writePacketBlock(to, block);
  std::size_t copied = 0;
  for (const auto& piece : pieces) {
    const std::size_t part = std::min(piece.size(), kept - copied);
    if (part > 0) std::memcpy(to + kKeptBytesAt + copied, piece.data(), part);
    copied += part;
  }
  chunk->used.store(used + block.bytes(), std::memory_order_release);
  recorded_ += block.bytes();
  bytes_ += block.originalBytes;
  ++interfaces_[interface].frames;
}

void FrameRecorder::writeOut(Chunk& chunk) {
  const std::size_t used = chunk.used.load(std::memory_order_acquire);
  if (used == chunk.written) return;
  const std::span<const std::byte> blocks(chunk.bytes.get() + chunk.written, used - chunk.written);
  if (failed_.load(std::memory_order_relaxed) || !writeWhole(blocks))
    discarded_.fetch_add(blocksIn(blocks), std::memory_order_relaxed);
  chunk.written = used;
}

void FrameRecorder::writeChunks() {
  for (;;) {
    const bool last = stopping_.load(
        std::memory_order_acquire);  // load this before filled_, so that everything recorded before the stop is seen
    const std::uint64_t filled = filled_.load(std::memory_order_acquire);
    const std::uint64_t first = written_.load(std::memory_order_relaxed);
    for (std::uint64_t next = first; next != filled; ++next) {
      Chunk& chunk = chunks_[next % kChunks];
      writeOut(chunk);
      chunk.written = 0;
      chunk.used.store(0, std::memory_order_relaxed);
      written_.store(next + 1, std::memory_order_release);
    }
    writeOut(chunks_[filled % kChunks]);
    if (last) return;
    if (first == filled) std::this_thread::sleep_for(kWriterNap);
  }
}

// On an error, truncates the file to its previous end.
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
  stopping_.store(true, std::memory_order_release);
  writer_.join();
}

Status FrameRecorder::finish(UnixTime now) {
  stop();
  std::string tail;
  for (std::size_t i = 0; i < interfaces_.size(); ++i) {
    appendInterfaceStatistics(tail, static_cast<std::uint32_t>(i), now, interfaces_[i].frames + interfaces_[i].lost,
                              interfaces_[i].lost);
  }
  if (!failed_.load(std::memory_order_acquire)) (void)writeWhole(std::as_bytes(std::span(tail)));
  file_.reset();
  const std::string failure = counters().failure;
  if (failure.empty()) return {};
  return cannotWrite(path_, fmt::format("the capture ended early: {}; what is there can be read", failure));
}

RecorderCounters FrameRecorder::counters() const {
  RecorderCounters counters;
  for (const InterfaceCounters& each : interfaces_) {
    counters.frames += each.frames;
    counters.lost += each.lost;
  }
  const std::uint64_t discarded = discarded_.load(std::memory_order_relaxed);
  counters.frames -= discarded;
  counters.lost += discarded;
  counters.bytes = bytes_;
  counters.fileBytes = fileBytes_.load(std::memory_order_relaxed);
  if (failed_.load(std::memory_order_acquire)) {
    counters.failure = failure_;
  } else if (tooLong_) {
    counters.failure = fmt::format("it has the greatest length allowed, {} bytes", options_.maxFileBytes);
  }
  return counters;
}

}  // namespace gloo_bypass::capture
