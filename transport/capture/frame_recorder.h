// Writes frames to a pcapng file without ever keeping waiting who hands them over.
//
//   record() --copies--> chunk being filled --a thread of this object's, every kWriterNap--> file
//
// Bounds: kChunks chunks of kChunkBytes, taken as they are needed. Where all of them wait for the disk, frames are
// lost: counted for each interface, told in the file's statistics and by counters(). A file that cannot be written any
// further (a full disk) ends the recording, and so does one that has its greatest length: it ends after a whole block,
// so that it can be read; everything later counts as lost.
//
// Threads: record() and finish() by one owner; counters() by the owner too. The writing thread takes no signals.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"
#include "transport/base/time.h"
#include "transport/capture/pcapng_blocks.h"

namespace gloo_bypass::capture {

// What to add to a time of the transports' clock, which says `now`, for that of the world.
Duration unixClockAhead(TimePoint now);

struct RecorderCounters {
  std::uint64_t frames = 0, lost = 0;
  std::uint64_t bytes = 0;      // of the frames as they were
  std::uint64_t fileBytes = 0;  // written so far
  std::string failure;          // empty: none; else why recording has ended
};

struct RecorderOptions {
  struct Interface {
    std::string name, description;
  };
  std::vector<Interface> interfaces;
  std::uint32_t snapLength = 0;    // bytes kept of a frame; 0: all
  std::uint64_t maxFileBytes = 0;  // 0: no bound
  std::string application;         // that the file names as its maker
};

class FrameRecorder {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
  static constexpr std::uint64_t kChunks = 64;

  // `path` must not exist. The error is one line.
  static Result<std::unique_ptr<FrameRecorder>> create(const std::string& path, const RecorderOptions& options);
  // Writes to what is open already; `name` is for messages.
  static Result<std::unique_ptr<FrameRecorder>> create(FileDescriptor file, const std::string& name,
                                                       const RecorderOptions& options);
  // Writes what is left; without finish() the statistics are missing.
  ~FrameRecorder();
  FrameRecorder(const FrameRecorder&) = delete;
  FrameRecorder& operator=(const FrameRecorder&) = delete;

  // Keeps the beginning of the frame, which lies in these pieces one after the other, at most the snap length. It is
  // copied. `wholeBytes`: its length, where the pieces are not all of it.
  void record(std::size_t interface, UnixTime time, FrameDirection direction,
              std::span<const std::span<const std::byte>> pieces, std::size_t wholeBytes = 0);
  void record(std::size_t interface, UnixTime time, std::span<const std::byte> frame) {
    record(interface, time, FrameDirection::kUnknown, std::span(&frame, 1));
  }
  // Writes what is left and the statistics, and closes the file. Once. The error says what the file lacks.
  Status finish(UnixTime now);

  RecorderCounters counters() const;
  // Whether recording has ended early; cheap.
  bool ended() const { return tooLong_ || failed_.load(std::memory_order_acquire); }

 private:
  // The owner appends whole blocks, and shows them by `used`.
  struct Chunk {
    std::unique_ptr<std::byte[]> bytes;
    std::atomic<std::size_t> used{0};
    std::size_t written = 0;  // of the writer
  };
  struct InterfaceCounters {
    std::uint64_t frames = 0, lost = 0;
  };

  FrameRecorder(std::string path, FileDescriptor file, const RecorderOptions& options)
      : path_(std::move(path)), file_(std::move(file)), options_(options), interfaces_(options.interfaces.size()) {}
  void start();
  // A chunk with room for so many bytes; nullptr: all of them wait for the disk, or recording has ended.
  Chunk* roomFor(std::size_t bytes);
  void writeChunks();
  void writeOut(Chunk& chunk);
  bool writeWhole(std::span<const std::byte> bytes);
  void stop();

  const std::string path_;
  FileDescriptor file_;
  const RecorderOptions options_;
  std::vector<InterfaceCounters> interfaces_;
  std::uint64_t bytes_ = 0;     // of recorded frames
  std::uint64_t recorded_ = 0;  // the file's length, once all is written
  bool tooLong_ = false;
  std::array<Chunk, kChunks> chunks_;
  // Chunk n is chunks_[n % kChunks]: those before written_ are in the file, those before filled_ are full, and filled_
  // is being filled.
  std::atomic<std::uint64_t> filled_{0}, written_{0};
  std::atomic<std::uint64_t> fileBytes_{0};
  std::atomic<std::uint64_t> discarded_{0};  // blocks that were recorded and not written
  std::atomic<bool> stopping_{false}, failed_{false};
  std::string failure_;  // set before failed_
  std::thread writer_;
};

}  // namespace gloo_bypass::capture
