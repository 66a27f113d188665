#include <intel-ipsec-mb.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "transport/base/check.h"
#include "transport/base/copy_part.h"
#include "transport/security/aead.h"
#include "transport/security/secret.h"

namespace gloo_bypass::security {
namespace {

// Its table of functions for this processor; constant once made, never freed. Null: no memory for it.
const IMB_MGR* functions() {
  static const IMB_MGR* const made = [] {
    IMB_MGR* const manager = alloc_mb_mgr(0);
    if (manager != nullptr) init_mb_mgr_auto(manager, nullptr);
    return manager;
  }();
  return made;
}

// Below, one call on a copy, which prefetches, takes less time than two on the pieces.
constexpr std::size_t kGatherFrom = 16'384;

const std::uint8_t* octets(const std::byte* bytes) { return reinterpret_cast<const std::uint8_t*>(bytes); }
std::uint8_t* octets(std::byte* bytes) { return reinterpret_cast<std::uint8_t*>(bytes); }

class IpsecMbAead final : public Aead {
 public:
  explicit IpsecMbAead(const AeadKey& key) {
    GLOO_BYPASS_CHECK(functions() != nullptr);
    IMB_AES128_GCM_PRE(functions(), key.data(), &key_);
  }
  ~IpsecMbAead() override {
    wipe(std::as_writable_bytes(std::span(&key_, 1)));
    wipe(std::as_writable_bytes(std::span(&state_, 1)));
  }

  void seal(const Nonce& nonce, std::span<const std::byte> associated, std::span<const std::byte> first,
            std::span<const std::byte> second, std::byte* out) override {
    const IMB_MGR* const f = functions();
    if (second.size() < kGatherFrom) {
      const std::size_t length = first.size() + second.size();
      if (!first.empty()) std::memmove(out, first.data(), first.size());
      if (second.data() != out + first.size()) copyPart<ColdEnd::kSource>(out + first.size(), second);
      IMB_AES128_GCM_ENC(f, &key_, &state_, octets(out), octets(out), length, octets(nonce.data()),
                         octets(associated.data()), associated.size(), octets(out + length), kTagBytes);
      return;
    }
    IMB_AES128_GCM_INIT(f, &key_, &state_, octets(nonce.data()), octets(associated.data()), associated.size());
    if (!first.empty()) {
      IMB_AES128_GCM_ENC_UPDATE(f, &key_, &state_, octets(out), octets(first.data()), first.size());
    }
    out += first.size();
    IMB_AES128_GCM_ENC_UPDATE(f, &key_, &state_, octets(out), octets(second.data()), second.size());
    IMB_AES128_GCM_ENC_FINALIZE(f, &key_, &state_, octets(out + second.size()), kTagBytes);
  }

  bool open(const Nonce& nonce, std::span<const std::byte> associated, std::span<const std::byte> sealed,
            std::byte* out) override {
    const std::size_t length = sealed.size() - kTagBytes;
    std::array<std::byte, kTagBytes> sent, computed;
    std::copy(sealed.end() - kTagBytes, sealed.end(), sent.begin());  // before `out`, which may be the same memory
    IMB_AES128_GCM_DEC(functions(), &key_, &state_, octets(out), octets(sealed.data()), length, octets(nonce.data()),
                       octets(associated.data()), associated.size(), octets(computed.data()), kTagBytes);
    return equal(sent, computed);
  }

 private:
  // The library's moves need it, and its header asks for it on some systems only.
  alignas(64) gcm_key_data key_;
  alignas(64) gcm_context_data state_;
};

}  // namespace

bool hasIpsecMb() {
  static const bool has = [] {
    constexpr std::uint64_t kNeeded = IMB_FEATURE_AESNI | IMB_FEATURE_PCLMULQDQ;
    return functions() != nullptr && (functions()->features & kNeeded) == kNeeded;
  }();
  return has;
}

std::unique_ptr<Aead> makeIpsecMbAead(const AeadKey& key) { return std::make_unique<IpsecMbAead>(key); }

}  // namespace gloo_bypass::security
