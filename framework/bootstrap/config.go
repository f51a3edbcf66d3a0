package bootstrap

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/handshake"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/usersecret"
	"github.com/mscclpp-go/mscclpp/internal/loopback"
)

// Defaults of Config.
const (
	DefaultTimeout   = 30 * time.Second
	DefaultHeartbeat = time.Second
)

// Config says which job to join, and as whom.
type Config struct {
	Rank, Size int

	// ID names the job. When it is zero, Addr, Secret and Job stand for it.
	ID UniqueID

	// Addr is where rank 0 listens, as host:port.
	Addr string
	// Secret is known to all ranks and to nobody else; at least 16 bytes. Without one, all ranks
	// must be processes of one user on one host, which share a secret of the user that Join makes;
	// or Insecure must be set.
	Secret []byte
	// Job separates jobs that share a secret.
	Job string

	// Listener is for rank 0: a listener that the program that starts the ranks has
	// already opened at the address. Join closes it in the end.
	Listener net.Listener

	// kept says that the parent process has a copy of Listener, and that nobody but this
	// process uses it: Join ends it in both.
	kept bool

	// Interface is the network interface that other ranks connect to: a name, or a
	// network as 10.1.0.0/16. Empty: the one that leads to rank 0.
	Interface string

	// Family restricts the addresses of the job to IPv4 or IPv6. Empty: both.
	Family Family

	// HostID overrides the identity of this host. Empty: the kernel's boot id.
	HostID string

	// Insecure allows a job of several hosts without a secret.
	Insecure bool

	// Timeout bounds how long Join waits for other ranks; 0 = DefaultTimeout. The context
	// may end the wait sooner. If the job fails before all ranks have joined, rank 0 stays
	// for up to a second more: see Join.
	Timeout time.Duration

	// Heartbeat is the interval of heartbeats between hosts, at least a second; 0 =
	// DefaultHeartbeat. A host is dead after eight intervals without any.
	Heartbeat time.Duration

	// missed is how many heartbeats may be; tests have less patience.
	missed int

	// late is how long rank 0 stays for ranks that come late; tests have more
	// patience.
	late time.Duration

	// handshakes is how many connections may be in theirs at once; tests have fewer.
	handshakes int

	// addresses are those of this host; tests have others.
	addresses func() ([]net.Addr, error)

	// lookup finds the addresses of a name; tests have other names.
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)

	// Log gets rejected connections and the like; nil = nowhere.
	Log *slog.Logger
}

// Longer durations are mistakes, and overflow what is computed of them.
const (
	maxTimeout   = 365 * 24 * time.Hour
	maxHeartbeat = time.Hour
)

func (c *Config) complete() (handshake.Identity, error) {
	bad := func(format string, args ...any) (handshake.Identity, error) {
		return handshake.Identity{}, fmt.Errorf("%w: "+format, append([]any{framework.ErrInvalid}, args...)...)
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = DefaultHeartbeat
	}
	if c.missed == 0 {
		c.missed = missedBeats
	}
	if c.late == 0 {
		c.late = lateTimeout
	}
	if c.handshakes == 0 {
		c.handshakes = mostHandshakes(openFiles())
	}
	if c.addresses == nil {
		c.addresses = net.InterfaceAddrs
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.Size < 1 || c.Size > MaxRanks:
		return bad("a job of %d ranks: expected 1 to %d", c.Size, MaxRanks)
	case c.Rank < 0 || c.Rank >= c.Size:
		return bad("rank %d of %d: expected 0 to %d", c.Rank, c.Size, c.Size-1)
	case c.Timeout < 0 || c.Timeout > maxTimeout:
		return bad("timeout %v: expected a positive duration of at most %v", c.Timeout, maxTimeout)
	case c.Heartbeat < time.Second || c.Heartbeat > maxHeartbeat:
		return bad("heartbeat %v: expected 1s to %v", c.Heartbeat, maxHeartbeat)
	case c.Listener != nil && c.Rank != 0:
		return bad("rank %d has a listener: expected one for rank 0 only", c.Rank)
	}
	if err := c.Family.validate(); err != nil {
		return handshake.Identity{}, err
	}
	if c.ID != (UniqueID{}) {
		if err := c.ID.Validate(); err != nil {
			return handshake.Identity{}, err
		}
		return handshake.Identity{Job: c.ID.Job(), Key: deriveKey(c.ID.secret()), HasSecret: true}, nil
	}
	if c.Addr == "" {
		return bad("neither a unique id nor an address of rank 0 is known: start with mscclpp-run, or set MSCCLPP_UNIQUE_ID, or MASTER_ADDR and MASTER_PORT")
	}
	host, port, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return bad("address of rank 0 %q: expected host:port", c.Addr)
	}
	if host == "localhost" { // which a host with IPv6 alone may still call 127.0.0.1
		c.Addr = net.JoinHostPort(loopback.Address(c.Family == IPv6), port)
	}
	if len(c.Secret) > 0 && len(c.Secret) < minSecret {
		return bad("a secret of %d bytes: expected at least %d", len(c.Secret), minSecret)
	}
	// The address is not part of the job's identity: ranks may reach rank 0 by
	// different names.
	job := sha256.Sum256([]byte("mscclpp job\x00" + c.Job))
	id := handshake.Identity{Job: [16]byte(job[:]), Key: deriveKey(c.Secret), HasSecret: len(c.Secret) > 0}
	if !id.HasSecret && !c.Insecure && c.Size > 1 {
		secret, file, err := usersecret.Read()
		if err != nil {
			return handshake.Identity{}, fmt.Errorf("%w: secret of this user, which keeps others out of a job without %s: %w: set %s on all ranks", framework.ErrUnavailable, EnvSecretFile, err, EnvSecretFile)
		}
		id.Key, id.OneHost, id.KeyFile = deriveKey(secret), true, file
	}
	return id, nil
}

// deriveKey keeps the secret itself out of everything that is computed later.
func deriveKey(secret []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("mscclpp bootstrap key 1"))
	return h.Sum(nil)
}

// closeListener closes the listener that rank 0 was given, if any. A copy of a living parent would
// go on taking connections that nobody answers: late ranks would wait instead of being refused.
func (c *Config) closeListener() {
	if c.Listener == nil {
		return
	}
	if l, ok := c.Listener.(*net.TCPListener); ok && c.kept {
		if raw, err := l.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
		}
	}
	_ = c.Listener.Close()
}
