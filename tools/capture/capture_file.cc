#include "tools/capture/capture_file.h"

#include <fmt/format.h>
#include <pcap/pcap.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

namespace gloo_bypass::capture {
namespace {

Error unreadable(const std::string& name, const std::string& why) {
  return {ErrorScope::kOperation, ErrorCode::kInvalidArgument, fmt::format("{}: {}", name, why)};
}

std::optional<LinkLayer> linkLayerOf(int type) {
  switch (type) {
    case DLT_EN10MB:
      return LinkLayer::kEthernet;
    case DLT_RAW:
    case DLT_IPV4:
      return LinkLayer::kRawIp;
    case DLT_LINUX_SLL:
      return LinkLayer::kCooked;
    case DLT_LINUX_SLL2:
      return LinkLayer::kCooked2;
    default:
      return {};
  }
}

// A file can say any second and any fraction.
CaptureTime timeOf(const timeval& time) {
  constexpr std::int64_t kLongest = std::numeric_limits<std::int64_t>::max() / 4 / 1'000'000'000;
  const std::int64_t seconds = std::clamp<std::int64_t>(time.tv_sec, -kLongest, kLongest);
  const std::int64_t fraction = std::clamp<std::int64_t>(time.tv_usec, 0, std::numeric_limits<std::uint32_t>::max());
  return std::chrono::seconds(seconds) + std::chrono::nanoseconds(fraction);
}

}  // namespace

void CaptureFile::Close::operator()(pcap* handle) const { ::pcap_close(handle); }
void CaptureFile::Close::operator()(bpf_program* program) const {
  ::pcap_freecode(program);
  delete program;
}

Result<CaptureFile> CaptureFile::open(const std::string& path, const std::string& filter) {
  std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) return unreadable(path, std::strerror(errno));
  return open(file, path == "-" ? "standard input" : path, filter);
}

Result<CaptureFile> CaptureFile::open(std::FILE* file, const std::string& name, const std::string& filter) {
  // libpcap says of an empty file how many bytes of a header were missing.
  const int first = std::fgetc(file);
  if (first == EOF) {
    const std::string why = std::ferror(file) != 0 ? std::strerror(errno) : "the file is empty";
    std::fclose(file);
    return unreadable(name, why);
  }
  std::ungetc(first, file);
  std::array<char, PCAP_ERRBUF_SIZE> error{};
  pcap* handle = ::pcap_fopen_offline_with_tstamp_precision(file, PCAP_TSTAMP_PRECISION_NANO, error.data());
  if (handle == nullptr) {
    std::fclose(file);
    return unreadable(name, fmt::format("not a capture, or its header is damaged: {}", error.data()));
  }
  const int type = ::pcap_datalink(handle);
  CaptureFile capture(handle, LinkLayer::kEthernet);
  const auto link = linkLayerOf(type);
  if (!link) {
    const char* typeName = ::pcap_datalink_val_to_name(type);
    return unreadable(
        name,
        fmt::format("its frames begin with a header of type {} ({}); known are EN10MB, RAW, LINUX_SLL and LINUX_SLL2",
                    type, typeName == nullptr ? "unknown" : typeName));
  }
  capture.link_ = *link;
  if (!filter.empty()) {
    auto program = std::make_unique<bpf_program>();
    if (::pcap_compile(handle, program.get(), filter.c_str(), 1, PCAP_NETMASK_UNKNOWN) != 0) {
      return unreadable(name, fmt::format("--filter '{}': {}", filter, ::pcap_geterr(handle)));
    }
    capture.filter_.reset(program.release());
  }
  return capture;
}

std::optional<CapturedFrame> CaptureFile::next() {
  if (fault_) return {};
  pcap_pkthdr* header = nullptr;
  const u_char* bytes = nullptr;
  const int result = ::pcap_next_ex(handle_.get(), &header, &bytes);
  if (result == 1) {
    ++frames_;
    CapturedFrame frame;
    frame.time = timeOf(header->ts);
    frame.bytes = {reinterpret_cast<const std::byte*>(bytes), header->caplen};
    frame.originalLength = header->len;
    frame.passesFilter = !filter_ || ::pcap_offline_filter(filter_.get(), header, bytes) != 0;
    return frame;
  }
  if (result != PCAP_ERROR_BREAK) {
    fault_ = CaptureFault{::pcap_geterr(handle_.get()), ::ftello(::pcap_file(handle_.get())), frames_};
  }
  return {};
}

std::string CaptureFile::linkName() const {
  const char* name = ::pcap_datalink_val_to_name(::pcap_datalink(handle_.get()));
  return name == nullptr ? "unknown" : name;
}

std::uint64_t CaptureFile::snapLength() const {
  return static_cast<std::uint64_t>(std::max(::pcap_snapshot(handle_.get()), 0));
}

}  // namespace gloo_bypass::capture
