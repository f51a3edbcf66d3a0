package tcp

import (
	"fmt"
	"math"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
)

// Config holds the transport's options. Take Defaults and change what matters.
type Config struct {
	Family          string        `help:"Addresses to use: inet, inet6, or nothing for both."`
	Interface       string        `help:"Network interface whose addresses are used; all that are up if empty."`
	Network         string        `help:"Name of the network. Ranks whose names differ do not try to reach each other."`
	Drive           string        `help:"The process that drives the streams of ranks on the host: rank, or plugin."`
	Streams         int           `help:"Connections for each pair of ranks and direction, over which large puts are spread."`
	Stripe          int           `help:"Bytes of a put that are worth a connection of their own; 0: 1 MiB, and within a host none where the rank drives."`
	Buffer          int           `help:"Bytes of puts that are sent together while more are coming."`
	SocketBuffer    int           `help:"Bytes of each socket's send and receive buffer; 0: 2 MiB to begin with, where the system allows it, and then as it thinks."`
	MaxRate         int           `help:"Bytes a second that each connection sends at most; 0: as many as the network takes."`
	LocalCongestion string        `help:"Congestion control of connections within a host; nothing: as the system thinks."`
	ConnectTimeout  time.Duration `help:"How long the host of a peer may take to accept a connection."`
	AnswerTimeout   time.Duration `help:"How long a peer that has accepted a connection may take to authenticate itself: it may have been stopped for a while."`
	PeerTimeout     time.Duration `help:"How long the host of a peer may be silent before it is given up."`
	DrainSpin       time.Duration `help:"How long an idle proxy polls before it starts to yield its core."`
	DrainYield      time.Duration `help:"How long an idle proxy yields its core before it sleeps until it is woken."`
}

// Defaults are the values of a Config that nobody changed.
func (Config) Defaults() Config {
	return Config{
		Network: "default", Drive: driveRank, Streams: 4, Buffer: 1 << 16, LocalCongestion: "reno",
		ConnectTimeout: 5 * time.Second, AnswerTimeout: 30 * time.Second, PeerTimeout: 10 * time.Second,
		DrainSpin: 20 * time.Microsecond, DrainYield: time.Millisecond,
	}
}

// The values of Drive.
const (
	driveRank   = "rank"
	drivePlugin = "plugin"
)

// stripe is how many bytes of a put are worth a connection of their own, for streams that
// have a thread each.
func (c Config) stripe() int {
	if c.Stripe == 0 {
		return defaultStripe
	}
	return c.Stripe
}

// handedStripe is stripe for streams that one thread of the rank drives. Over a network
// several of them take several paths, and recover from a loss on their own. Within a
// host nothing is gained: what is under way only leaves the caches.
func (c Config) handedStripe(sameHost bool) uint64 {
	if sameHost && c.Stripe == 0 {
		return math.MaxInt64
	}
	return uint64(c.stripe())
}

const defaultStripe = 1 << 20

// Limits of the options.
const (
	maxStreams  = 64
	minStripe   = 4096
	maxBuffer   = 64 << 20
	leastRate   = 4096
	leastSilent = 3 * time.Second // kernels count signs of life in seconds
	mostTime    = 10 * time.Minute
)

var (
	networkName    = onfirstuse.Regexp(`^[A-Za-z0-9._-]{1,64}$`)
	congestionName = onfirstuse.Regexp(`^[A-Za-z0-9_]{0,15}$`) // as long as Linux takes them
)

// Validate says what is wrong with a Config.
func (c Config) Validate() error {
	bad := func(name string, value any, want string, args ...any) error {
		return framework.BadOption(name, "%s %v: expected %s", name, value, fmt.Sprintf(want, args...))
	}
	switch {
	case c.Family != "" && c.Family != familyV4 && c.Family != familyV6:
		return bad("family", fmt.Sprintf("%q", c.Family), "inet, inet6, or nothing for both")
	case !networkName().MatchString(c.Network):
		return bad("network", fmt.Sprintf("%q", c.Network), "1 to 64 letters, digits, dots, dashes or underscores")
	case c.Drive != driveRank && c.Drive != drivePlugin:
		return bad("drive", fmt.Sprintf("%q", c.Drive), "%s or %s", driveRank, drivePlugin)
	case c.Streams < 1 || c.Streams > maxStreams:
		return bad("streams", c.Streams, "1 to %d", maxStreams)
	case c.Stripe != 0 && (c.Stripe < minStripe || c.Stripe > 1<<30):
		return bad("stripe", c.Stripe, "0, or %d to %d", minStripe, 1<<30)
	case c.Buffer < 2*smallPut || c.Buffer > maxBuffer:
		return bad("buffer", c.Buffer, "%d to %d", 2*smallPut, maxBuffer)
	case c.SocketBuffer < 0 || c.SocketBuffer > 1<<30:
		return bad("socket_buffer", c.SocketBuffer, "0 to %d", 1<<30)
	case c.MaxRate != 0 && (c.MaxRate < leastRate || c.MaxRate > math.MaxInt32):
		return bad("max_rate", c.MaxRate, "0, or %d to %d", leastRate, math.MaxInt32)
	case !congestionName().MatchString(c.LocalCongestion):
		return bad("local_congestion", fmt.Sprintf("%q", c.LocalCongestion), "a name of up to 15 letters, digits and underscores, or nothing")
	case c.ConnectTimeout <= 0 || c.ConnectTimeout > mostTime:
		return bad("connect_timeout", c.ConnectTimeout, "more than 0 and up to %v", mostTime)
	case c.AnswerTimeout <= 0 || c.AnswerTimeout > mostTime:
		return bad("answer_timeout", c.AnswerTimeout, "more than 0 and up to %v", mostTime)
	case c.PeerTimeout < leastSilent || c.PeerTimeout > mostTime:
		return bad("peer_timeout", c.PeerTimeout, "%v to %v", leastSilent, mostTime)
	case c.DrainSpin < 0 || c.DrainSpin > mostTime:
		return bad("drain_spin", c.DrainSpin, "0 to %v", mostTime)
	case c.DrainYield < 0 || c.DrainYield > mostTime:
		return bad("drain_yield", c.DrainYield, "0 to %v", mostTime)
	}
	return nil
}

// smallPut is the size up to which the data of a put is copied, to be sent together
// with its frame and others.
const smallPut = 8 << 10

// The families, as the configuration spells them.
const (
	familyV4 = "inet"
	familyV6 = "inet6"
)
