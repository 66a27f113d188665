#include "tests/support/media/media.h"
#include "transport/dpdk/dpdk_port.h"

namespace gloo_bypass::test {
namespace {

std::vector<Medium> dpdkMedia() {
  return {{.name = "DpdkMemif", .makeTransport = betweenTwoPorts({}, dpdk::makeDpdkPort), .largeSendWaits = false}};
}

const MediaOf entry(dpdkMedia);

}  // namespace
}  // namespace gloo_bypass::test
