// CRC-32C (Castagnoli), as in iSCSI and ext4. ISA-L computes it with the processor's instructions if there are any.
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gloo_bypass::wire {

// The checksum of `bytes`, at most 2 GiB; `previous` is the checksum of the bytes before them (0: none).
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous = 0);

}  // namespace gloo_bypass::wire
