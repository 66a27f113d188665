// In place of ipsec_mb_aead.cc where the build has no intel-ipsec-mb.
#include "transport/base/check.h"
#include "transport/security/aead.h"

namespace gloo_bypass::security {

bool hasIpsecMb() { return false; }

std::unique_ptr<Aead> makeIpsecMbAead(const AeadKey&) {
  GLOO_BYPASS_CHECK(!"this build has no intel-ipsec-mb");
  return nullptr;
}

}  // namespace gloo_bypass::security
