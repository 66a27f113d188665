// Every fault of a description gives one line: place, problem, allowed values. And hostile input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/fabric/core/descriptions.h"
#include "transport/base/printable.h"

namespace gloo_bypass::fabric {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Fault {
  std::string text;
  std::string message;
};

void expectFaults(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) EXPECT_EQ(faultOf(fault.text), fault.message) << fault.text;
}

const std::string kEdgeKeys =
    "rate, overhead, queue, delay, jitter, loss, burst_enter, burst_leave, burst_loss, duplication, reordering, "
    "reorder_delay, "
    "corruption";
const std::string kDurations = "give a number and ns, us, ms, s, min or h, such as \"100ms\"";

std::string edge(const std::string& settings) { return "ranks = 2\n[[edge]]\nfrom = \"r0\"\nto = \"r1\"\n" + settings; }
std::string event(const std::string& settings) {
  return "ranks = 2\n[[event]]\nfrom = \"r0\"\nto = \"r1\"\n" + settings;
}
std::string host(const std::string& settings) { return "ranks = 2\n[[host]]\nname = \"h\"\n" + settings; }

TEST(DescriptionFaults, OfTheFileItself) {
  expectFaults({
      {"", "f.toml: 0 hosts; a fabric has at least 2: give [[host]] entries, or ranks = 4"},
      {"[[host]]\nname = \"a\"", "f.toml: 1 host; a fabric has at least 2: give [[host]] entries, or ranks = 4"},
      {"ranks = 4\nspeed = 3",
       "f.toml:2:1: unknown key \"speed\"; a description has seed, ranks, network, defaults, ring, host, edge, event"},
      {"ranks = 4\n[edge]\nfrom = \"r0\"", "f.toml:2:2: edge is a list of tables: write [[edge]]"},
      {"ranks = 4\nhost = [1, 2]", "f.toml:2:9: host is a list of tables: write [[host]]"},
      {"ranks = 4\n[[defaults]]\ndelay = \"1ms\"", "f.toml:2:3: defaults is a table: write [defaults]"},
      {"ranks = 4\ndefaults = 3", "f.toml:2:1: defaults is a table: write [defaults]"},
      {"ranks = [4]", "f.toml:1:1: ranks has a list, a table or a date; give one plain value"},
      {"ranks = 4\n[defaults]\ndelay.ms = 5",
       "f.toml:3:1: defaults.delay has a list, a table or a date; give one plain value"},
      {"seed = -1\nranks = 4", "f.toml:1:1: seed = -1: is no seed; give a whole number from 0 to 18446744073709551615"},
      {"seed = 1.5\nranks = 4",
       "f.toml:1:1: seed = 1.5: is no seed; give a whole number from 0 to 18446744073709551615"},
      {"ranks = 1", "f.toml:1:1: ranks = 1: is no number of hosts; give 2 to 256"},
      {"ranks = 257", "f.toml:1:1: ranks = 257: is no number of hosts; give 2 to 256"},
      {"ranks = -4", "f.toml:1:1: ranks = -4: is no number of hosts; give 2 to 256"},
      {"ranks = \"four\"", "f.toml:1:1: ranks = \"four\": is no number of hosts; give 2 to 256"},
      {"ranks = 4\nnetwork = \"10.0.0.1/24\"",
       "f.toml:2:1: network = \"10.0.0.1/24\": is no IPv4 network; give its first address and a prefix from 8 to 30, "
       "such as 10.32.0.0/24"},
      {"ranks = 4\nnetwork = \"10.0.0.0/30\"",
       "f.toml:1:1: host \"r1\" (rank 1) has no address left in 10.0.0.0/30; give a larger network"},
  });
  EXPECT_THAT(faultOf("ranks = 4\nranks = 5"), StartsWith("f.toml:2:"));
  EXPECT_THAT(faultOf("ranks = \n[["), StartsWith("f.toml:1:"));
  EXPECT_THAT(faultOf("ranks = 4\n[defaults\n"), StartsWith("f.toml:2:"));
}

TEST(DescriptionFaults, OfHosts) {
  expectFaults({
      {"[[host]]\nsite = \"x\"", "f.toml:1:1: host: has no name; give name = \"...\""},
      {"[[host]]\nname = \"a b\"",
       "f.toml:2:1: host.name = \"a b\": is no name; use 1 to 32 letters, digits, \"-\", \"_\" and \".\""},
      {"[[host]]\nname = \"*\"",
       "f.toml:2:1: host.name = \"*\": is no name; use 1 to 32 letters, digits, \"-\", \"_\" and \".\""},
      {"[[host]]\nname = \"a\"\n[[host]]\nname = \"a\"",
       "f.toml:4:1: host.name = \"a\": a host of that name is already at f.toml:2:1; names differ"},
      {host("colour = \"red\""),
       "f.toml:4:1: host.colour = \"red\": unknown key; host has name, site, ipv4, mac, memif, interface, tap, "
       "namespace"},
      {host("site = \"\""),
       "f.toml:4:1: host.site = \"\": is no name; use 1 to 32 letters, digits, \"-\", \"_\" and \".\""},
      {host("site = \"r1\""), "f.toml:4:1: host \"h\": site \"r1\" has the name of a host; names differ"},
      {host("ipv4 = \"10.0.0.256/24\""),
       "f.toml:4:1: host.ipv4 = \"10.0.0.256/24\": is no IPv4 address with its prefix; give one such as 10.32.0.2/24 "
       "(prefixes from 8 "
       "to 30)"},
      {host("ipv4 = \"10.0.0.1\""),
       "f.toml:4:1: host.ipv4 = \"10.0.0.1\": is no IPv4 address with its prefix; give one such as 10.32.0.2/24 "
       "(prefixes from 8 to "
       "30)"},
      {host("ipv4 = \"10.0.0.0/24\""),
       "f.toml:4:1: host.ipv4 = \"10.0.0.0/24\": is the network 10.0.0.0/24 itself or its broadcast address, not a "
       "host's"},
      {"network = \"10.1.0.0/24\"\n" + host("ipv4 = \"10.2.0.1/24\""),
       "f.toml:5:1: host.ipv4 = \"10.2.0.1/24\": is not in 10.1.0.0/24, the network of this fabric; it switches and "
       "does not route"},
      {host("ipv4 = \"10.0.0.9/24\"\n[[host]]\nname = \"g\"\nipv4 = \"10.0.0.9/24\""),
       "f.toml:7:1: host \"g\": address 10.0.0.9 already belongs to host \"h\"; addresses differ"},
      {host("mac = \"01:00:00:00:00:01\""),
       "f.toml:4:1: host.mac = \"01:00:00:00:00:01\": is no address of an Ethernet device; give six bytes such as "
       "02:00:00:00:00:01 (no "
       "group address)"},
      {host("mac = \"02:00:00:00:00:01\"\n[[host]]\nname = \"g\"\nmac = \"02:0:0:0:0:1\""),
       "f.toml:7:1: host \"g\": address 02:00:00:00:00:01 already belongs to host \"h\"; addresses differ"},
  });
}

TEST(DescriptionFaults, OfPorts) {
  expectFaults({
      {host("memif = \"relative.sock\""),
       "f.toml:4:1: host.memif = \"relative.sock\": is no socket's path; give an absolute one of at most 107 bytes "
       "without commas"},
      {host("tap = \"an-interface-too-long\""),
       "f.toml:4:1: host.tap = \"an-interface-too-long\": is no interface's name; the kernel's have at most 15 bytes, "
       "no blank, \"/\" or "
       "\":\""},
      {host("memif = \"/a\"\ntap = \"b\""),
       "f.toml:5:1: host.tap = \"b\": is a second port of this host; give one of memif, interface and tap"},
      {host("namespace = \"a/b\""),
       "f.toml:4:1: host.namespace = \"a/b\": is no name of a network namespace; give it as \"ip netns list\" prints "
       "it"},
      {host("memif = \"/run/a.sock\"\n[[host]]\nname = \"g\"\nmemif = \"/run/x/.././/a.sock\""),
       "f.toml:7:1: host \"g\": socket /run/a.sock already belongs to host \"h\"; one attached to two ports makes a "
       "cycle"},
      {host("interface = \"eth1\"\n[[host]]\nname = \"g\"\ninterface = \"eth1\""),
       "f.toml:7:1: host \"g\": interface eth1 already belongs to host \"h\"; one attached to two ports makes a cycle"},
      {host("interface = \"eth1\"\n[[host]]\nname = \"g\"\ntap = \"eth1\""),
       "f.toml:7:1: host \"g\": interface eth1 already belongs to host \"h\"; one attached to two ports makes a cycle"},
      {host("tap = \"t0\"\nnamespace = \"n\"\n[[host]]\nname = \"g\"\ntap = \"t1\"\nnamespace = \"n\""),
       "f.toml:9:1: host \"g\": network namespace n already belongs to host \"h\"; the kernel would carry traffic "
       "between the two past "
       "the fabric"},
      {host("memif = \"/a\"\nnamespace = \"n\""),
       "f.toml:5:1: host \"h\": a namespace has no meaning for a memif port; it says where a tap's, or a port the "
       "fabric chooses, has "
       "its host's end"},
      {host("interface = \"a\"\nnamespace = \"n\""),
       "f.toml:5:1: host \"h\": a namespace has no meaning for an interface that exists; it says where a tap's, or a "
       "port the fabric "
       "chooses, has its host's end"},
  });
}

TEST(DescriptionFaults, OfEdges) {
  const std::string known = "hosts are r0, r1 (ranks 0 to 1), and \"*\" is all";
  expectFaults({
      {"ranks = 2\n[[edge]]\nfrom = \"r0\"\nto = \"r7\"\ndelay = \"1ms\"",
       "f.toml:4:1: edge.to = \"r7\": is no host, rank or site; " + known},
      {"ranks = 2\n[[edge]]\nfrom = 2\nto = 0\ndelay = \"1ms\"",
       "f.toml:3:1: edge.from = 2: is no host, rank or site; " + known},
      {"ranks = 2\n[[edge]]\nfrom = -1\nto = 0\ndelay = \"1ms\"",
       "f.toml:3:1: edge.from = -1: is no host, rank or site; " + known},
      {"ranks = 2\n[[edge]]\nfrom = \"r0\"\ndelay = \"1ms\"",
       "f.toml:2:1: edge: has no to; give a host, a rank, a site or \"*\""},
      {"ranks = 2\n[[edge]]\nfrom = \"r0\"\nto = \"r0\"\ndelay = \"1ms\"",
       "f.toml:4:1: edge.to = \"r0\": selects no edge: there is none from a host to itself"},
      {edge("both = \"yes\"\ndelay = \"1ms\""), "f.toml:5:1: edge.both = \"yes\": is neither true nor false"},
      {edge(""), "f.toml:2:1: edge: changes nothing; give some of " + kEdgeKeys},
      {edge("dealy = \"1ms\""), "f.toml:5:1: edge.dealy = \"1ms\": unknown key; edge has from, to, both, " + kEdgeKeys},
      {edge("at = \"1s\""), "f.toml:5:1: edge.at = \"1s\": unknown key; edge has from, to, both, " + kEdgeKeys},
      {edge("delay = 100"), "f.toml:5:1: edge.delay = 100: has no unit; " + kDurations},
      {edge("delay = \"-100ms\""), "f.toml:5:1: edge.delay = \"-100ms\": is negative; " + kDurations},
      {edge("delay = \"2h\""), "f.toml:5:1: edge.delay = \"2h\": is outside what is allowed, 0 s to 3600 s"},
      {edge("delay = nan"), "f.toml:5:1: edge.delay = nan: is not a duration; " + kDurations},
      {edge("delay = true"), "f.toml:5:1: edge.delay = true: is not a duration; " + kDurations},
      {edge("rate = \"-5Mbit/s\""),
       "f.toml:5:1: edge.rate = \"-5Mbit/s\": is negative; give a number and bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s, "
       "Pbit/s, B/s, kB/s, "
       "MB/s or GB/s, such as \"50Mbit/s\", or \"unlimited\""},
      {edge("rate = \"0bit/s\""),
       "f.toml:5:1: edge.rate = \"0bit/s\": is outside what is allowed, 1 kbit/s to 100 Pbit/s, or \"unlimited\""},
      {edge("loss = \"101%\""), "f.toml:5:1: edge.loss = \"101%\": is outside what is allowed, 0% to 100%"},
      {edge("loss = 0.01"), "f.toml:5:1: edge.loss = 0.01: has no unit; give a number and %, such as \"0.1%\""},
      {edge("queue = \"0B\""),
       "f.toml:5:1: edge.queue = \"0B\": is outside what is allowed, 1 B to 1024 GiB, or \"unlimited\""},
      {edge("overhead = \"1MiB\""), "f.toml:5:1: edge.overhead = \"1MiB\": is outside what is allowed, 0 B to 1 KiB"},
      {edge("reordering = \"1%\""),
       "f.toml: edge r0->r1: reordering = 1 % has no effect without reorder_delay; give how late such frames may be"},
      {"ranks = 2\n[defaults]\nreordering = \"1%\"",
       "f.toml:3:1: defaults.reordering = \"1%\": has no effect without reorder_delay; give how late such frames may "
       "be"},
      {"ranks = 2\n[defaults]\nfrom = \"r0\"",
       "f.toml:3:1: defaults.from = \"r0\": unknown key; defaults has " + kEdgeKeys},
      {"ranks = 2\n[ring]", "f.toml:2:2: ring: has no length; give length = \"4800km\""},
      {"ranks = 2\n[ring]\nlength = \"-1km\"",
       "f.toml:3:1: ring.length = \"-1km\": is negative; give a number and m or km, such as \"4800km\""},
      {"ranks = 2\n[ring]\nlength = \"2000000km\"",
       "f.toml:3:1: ring.length = \"2000000km\": is outside what is allowed, 1 m to 1e+06 km"},
      {"ranks = 2\n[ring]\nwidth = \"1km\"", "f.toml:3:1: ring.width = \"1km\": unknown key; ring has length"},
  });
  EXPECT_THAT(
      faultOf("[[host]]\nname = \"a\"\nsite = \"s\"\n[[host]]\nname = \"b\"\n[[edge]]\nfrom = \"x\"\nto = \"a\""),
      HasSubstr("hosts are a, b (ranks 0 to 1), sites s, and \"*\" is all"));
  EXPECT_THAT(faultOf("ranks = 100\n[[edge]]\nfrom = \"x\"\nto = \"r1\""), HasSubstr("r10, r11, ... (ranks 0 to 99)"));
}

TEST(DescriptionFaults, OfEvents) {
  const std::string already = "every edge it selects is already so";
  expectFaults({
      {event("down = \"1s\""), "f.toml:2:1: event: has no time; give at = \"5s\", counted from the fabric's start"},
      {event("at = 5\ndown = \"1s\""), "f.toml:5:1: event.at = 5: has no unit; " + kDurations},
      {event("at = \"8days\"\ndown = \"1s\""), "f.toml:5:1: event.at = \"8days\": is not a duration; " + kDurations},
      {event("at = \"169h\"\ndown = \"1s\""),
       "f.toml:5:1: event.at = \"169h\": is outside what is allowed, 0 s to 604800 s"},
      {event("at = \"5s\""),
       "f.toml:2:1: event: has no effect: it changes nothing; give down, or some of " + kEdgeKeys},
      {event("at = \"5s\"\nfor = \"1s\""),
       "f.toml:2:1: event: has no effect: it changes nothing; give down, or some of " + kEdgeKeys},
      {event("at = \"5s\"\ndown = \"0s\""),
       "f.toml:6:1: event.down = \"0s\": is outside what is allowed, 1 ns to 604800 s, or \"forever\""},
      {event("at = \"5s\"\nfor = \"0s\"\ndelay = \"1s\""),
       "f.toml:6:1: event.for = \"0s\": is outside what is allowed, 1 ns to 604800 s"},
      {event("at = \"5s\"\nfor = \"forever\"\ndelay = \"1s\""),
       "f.toml:6:1: event.for = \"forever\": is not a duration; " + kDurations},
      {event("at = \"5s\"\ndown = \"1s\"\ndelay = \"1s\""),
       "f.toml:6:1: event.down = \"1s\": stands beside other settings, which have no effect on a link that is down; "
       "make two events of "
       "them"},
      {event("at = \"5s\"\nup = true"),
       "f.toml:6:1: event.up = true: unknown key; event has at, from, to, both, for, down, " + kEdgeKeys},
      {event("at = \"5s\"\ndelay = \"0s\""),
       "f.toml:2:1: event: has no effect: at 5 s " + already + " (r0->r1: nothing)"},
      {event("at = \"5s\"\ndelay = \"1ms\"\n[[event]]\nfrom = \"*\"\nto = \"r1\"\nat = \"6s\"\ndelay = \"1ms\""),
       "f.toml:7:1: event: has no effect: at 6 s " + already + " (r0->r1: delay 1 ms)"},
      {event("at = \"5s\"\ndown = \"2s\"\n[[event]]\nfrom = \"r0\"\nto = \"r1\"\nat = \"6s\"\ndown = \"1s\""),
       "f.toml:7:1: event: has no effect: at 6 s " + already + " (r0->r1: down)"},
      {event("at = \"5s\"\nreordering = \"1%\""),
       "f.toml:2:1: event: reordering has no effect without reorder_delay; edge r0->r1 has none then"},
      {"ranks = 2\n[[event]]\nfrom = \"r0\"\nto = \"r9\"\nat = \"1s\"\ndown = \"1s\"",
       "f.toml:4:1: event.to = \"r9\": is no host, rank or site; hosts are r0, r1 (ranks 0 to 1), and \"*\" is all"},
  });
  EXPECT_EQ(good(event("at = \"5s\"\nfor = \"1s\"\ndelay = \"1ms\"\n[[event]]\nfrom = \"r0\"\nto = \"r1\"\nat = "
                       "\"6s\"\ndelay = \"1ms\""))
                .events.size(),
            2u)
      << "the first one has ended";
}

TEST(DescriptionFaults, OfFlags) {
  const auto fault = [](std::vector<DescriptionFlag> flags) { return faultOf("ranks = 2", std::move(flags)); };
  EXPECT_EQ(fault({{"edge", "from=r0,to=r1,delay=5x"}}),
            "--edge from=r0,to=r1,delay=5x: edge.delay = \"5x\": is not a duration; " + kDurations);
  EXPECT_EQ(fault({{"edge", "from=r0,to=r1,delay"}}),
            "--edge from=r0,to=r1,delay: \"delay\" is no KEY=VALUE; give them with commas between, such as "
            "delay=300ms,loss=1%");
  EXPECT_EQ(fault({{"edge", ""}}),
            "--edge : \"\" is no KEY=VALUE; give them with commas between, such as delay=300ms,loss=1%");
  EXPECT_EQ(fault({{"edge", "from=r0,to=r1,delay=1ms,delay=2ms"}}),
            "--edge from=r0,to=r1,delay=1ms,delay=2ms: delay is given twice");
  EXPECT_EQ(fault({{"seed", "x"}}),
            "--seed x: seed = \"x\": is no seed; give a whole number from 0 to 18446744073709551615");
  EXPECT_EQ(fault({{"host", "name=r0,tap=t"}, {"host", "name=r1,tap=t"}}),
            "--host name=r1,tap=t: host \"r1\": interface t already belongs to host \"r0\"; one attached to two ports "
            "makes a cycle");
  EXPECT_EQ(fault({{"host", "name=x"}, {"host", "name=x"}}),
            "--host name=x: host.name = \"x\": a host of that name is already at --host name=x; names differ");
  EXPECT_EQ(fault({{"colour", "red"}}),
            "--colour red: unknown flag; a description has seed, ranks, network, defaults, ring, host, edge, event");
}

// --- hostile input ---

TEST(HostileDescription, TooLong_IsRefused) {
  EXPECT_EQ(faultOf(std::string(DescriptionInput::kMaxBytes + 1, '\n')),
            "f.toml: 1048577 bytes are too many for a description; at most 1048576 are allowed");
  EXPECT_EQ(faultOf("ranks = 4\n# " + std::string(4'096, 'x')),
            "f.toml:2:1: a line of 4098 bytes; at most 4096 are allowed");
}

TEST(HostileDescription, DeepNesting_IsRefusedWithoutHarm) {
  EXPECT_THAT(faultOf("x = " + std::string(4'000, '[')), StartsWith("f.toml:1:"));
  std::string keys = "a";
  for (int i = 0; i < 2'000; ++i) keys += ".a";
  EXPECT_THAT(faultOf("[" + keys + "]\n"), StartsWith("f.toml:1:"));
  EXPECT_THAT(faultOf(keys + " = 1\n"), StartsWith("f.toml:1:"));
  std::string tables = "x = ";
  for (int i = 0; i < 1'000; ++i) tables += "{a=";
  EXPECT_THAT(faultOf(tables), StartsWith("f.toml:1:"));
}

TEST(HostileDescription, NumbersWithoutBound_AreRefused) {
  const std::string digits(4'000, '9');
  EXPECT_THAT(faultOf("ranks = " + digits), StartsWith("f.toml:1:"));
  EXPECT_THAT(faultOf("ranks = 9223372036854775807"), HasSubstr("is no number of hosts"));
  EXPECT_THAT(faultOf("ranks = \"" + digits + "\""), HasSubstr("is no number of hosts"));
  EXPECT_THAT(faultOf(edge("delay = \"" + digits + "ms\"")), HasSubstr("is out of range"));
  EXPECT_THAT(faultOf(edge("delay = \"0." + digits + "h\"")), HasSubstr("(no fault)")) << "one hour, and no more";
  EXPECT_THAT(faultOf(edge("rate = 1e308")), HasSubstr("edge.rate = 1e+308: "));
  EXPECT_THAT(faultOf(edge("loss = inf")), HasSubstr("is not a percentage"));
  EXPECT_THAT(faultOf(edge("loss = -nan")), HasSubstr("is not a percentage"));
}

TEST(HostileDescription, BytesThatAreNoText_GiveOnePrintableLine) {
  const std::vector<std::string> texts{
      std::string("ranks = \"\0\"", 11), "ranks = \"\xff\xfe\"", "\"a\\nb\\u001b[2J\" = 1",
      "ranks = \"\\n\\t\\u0007\"",       std::string(100, '\0'), "\xef\xbb\xbfranks = 1"};
  for (const std::string& text : texts) {
    const std::string message = faultOf(text);
    EXPECT_THAT(message, StartsWith("f.toml:")) << text;
    EXPECT_EQ(message, printable(message)) << text;
  }
}

TEST(HostileDescription, LongValues_AreCutInTheMessage) {
  const std::string message = faultOf("ranks = 2\n[[host]]\nname = \"" + std::string(4'000, 'n') + "\"");
  EXPECT_LT(message.size(), 300u);
  EXPECT_THAT(message, HasSubstr("nnn...\": is no name"));
}

TEST(HostileDescription, TooManyEvents_AreRefused) {
  std::string text = "ranks = 2\n";
  for (std::size_t i = 0; i <= kMaxEvents; ++i) {
    text += "[[event]]\nfrom = 0\nto = 1\nat = \"" + std::to_string(i) + "ms\"\ndelay = \"" + std::to_string(i + 1) +
            "ms\"\n";
  }
  EXPECT_THAT(faultOf(text), HasSubstr("event: at most 1000 are allowed"));
}

TEST(HostileDescription, TooManyHosts_AreRefused) {
  EXPECT_THAT(faultOf("ranks = 256\nnetwork = \"10.0.0.0/16\"\n[[host]]\nname = \"x\""),
              HasSubstr("is one host too many; at most 256 are allowed"));
}

}  // namespace
}  // namespace gloo_bypass::fabric
