// What the sessions of a transport make their keys of, from the configuration: whether they have any, and the
// pre-shared keys.
//
// A key is a line of 64 hexadecimal digits, 256 random bits: `openssl rand -hex 32`. A key file has one, or two while
// users replace one by the other: the preferred key first. It must be a regular file of this user that nobody else may
// read or write. It is read when the transport is made; a transport that lives keeps its keys.
//
// Thread: any.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/config.h"
#include "transport/base/status.h"
#include "transport/security/key_agreement.h"

namespace gloo_bypass {

// Null: sessions have no keys. The error is one line, and shows nothing of the file's contents.
Result<std::shared_ptr<const security::Credentials>> loadCredentials(const TransportConfig& config);
// The keys in a key file, in its order.
Result<std::vector<security::Secret>> readKeyFile(const std::string& path);
// 32 bytes of the system's entropy; nullopt: a sandbox refuses the call.
std::optional<security::Secret> drawSecret();

}  // namespace gloo_bypass
