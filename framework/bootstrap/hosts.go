package bootstrap

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
)

// hostHash identifies the host, and on it the part within which abstract sockets
// reach each other: containers with networks of their own count as hosts.
func hostHash(configured string) ([16]byte, error) {
	text := "configured\x00" + configured
	if configured == "" {
		boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return [16]byte{}, fmt.Errorf("%w: this host has no boot id, set bootstrap.host_id: %w", framework.ErrUnavailable, err)
		}
		space, err := os.Readlink("/proc/thread-self/ns/net") // that of the process is empty where its main thread has ended
		if err != nil {
			space = "unknown"
		}
		text = "boot\x00" + strings.TrimSpace(string(boot)) + "\x00" + space
	}
	sum := sha256.Sum256([]byte(text))
	return [16]byte(sum[:]), nil
}

// HostID returns what stands for the host of a rank.
func HostID(t *TCP) string { return hex.EncodeToString(t.self.host[:]) }

// findHostMates finds out to which ranks descriptors can travel: those that claim
// to be on this host and have, as this rank has, exchanged a descriptor with the
// first rank there.
func (s *startup) findHostMates(ctx context.Context, table []entry) error {
	alone, first := true, -1
	for r := range table {
		if table[r].host == s.t.self.host {
			if first < 0 {
				first = r
			}
			alone = alone && r == s.t.party.Rank
		}
	}
	works := byte(0)
	switch {
	case s.t.fds == nil || alone:
	case first == s.t.party.Rank:
		works = 1
	default:
		if err := s.t.fds.Probe(ctx, s.t.life, s.t.failures.Job, table[first].socket, first); err == nil {
			works = 1
		} else if cause := s.t.failures.Job.Cause(); cause != nil {
			return cause
		} else if ctx.Err() == nil {
			s.t.cfg.Log.Warn("bootstrap: a rank claims to be on this host, but descriptors do not reach it", "peer", first, "error", err)
		}
	}
	all, err := AllGatherBytes(ctx, s.t, tagHosts, []byte{works})
	if err != nil {
		return err
	}
	onHost := make([]bool, s.t.party.Size)
	for r, b := range all {
		if len(b) != 1 {
			return failure.Named(r, fmt.Errorf("%w: %d bytes about its host: expected 1", framework.ErrPeer, len(b)))
		}
		onHost[r] = r == s.t.party.Rank || (works == 1 && b[0] == 1 && table[r].host == s.t.self.host)
	}
	s.t.mu.Lock()
	s.t.onHost = onHost
	s.t.mu.Unlock()
	return nil
}

// SameHost reports whether descriptors reach rank. Both ends return the same.
func (t *TCP) SameHost(rank int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return rank >= 0 && rank < len(t.onHost) && t.onHost[rank]
}

// HostRanks lists the ranks of this host, this one included, ascending.
func (t *TCP) HostRanks() []int {
	var ranks []int
	for r := range t.party.Size {
		if t.SameHost(r) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}
