// CRC-32C (Castagnoli), as iSCSI and ext4 use it: SSE4.2's instruction where the processor has it, a table elsewhere.
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gloo_bypass {

// The checksum of `bytes`; `previous` is the checksum of the bytes before them (0: none).
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous = 0);
// The table's way, for machines without the instruction, and to test the other one against.
std::uint32_t crc32cPortable(std::span<const std::byte> bytes, std::uint32_t previous = 0);

}  // namespace gloo_bypass
