package main

// #include "internal.h"
import "C"

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/internal/loopback"
)

// listeners are those of ids that this process has made and that no rank 0 has taken yet.
var listeners waiting

type waiting struct {
	mu   sync.Mutex
	list map[bootstrap.UniqueID]net.Listener
}

func (w *waiting) add(id bootstrap.UniqueID, l net.Listener) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.list == nil {
		w.list = make(map[bootstrap.UniqueID]net.Listener)
	}
	w.list[id] = l
}

// take returns nil for an id of another process.
func (w *waiting) take(id bootstrap.UniqueID) net.Listener {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.list[id]
	delete(w.list, id)
	return l
}

// mostAddresses is how many an id has room for.
const mostAddresses = 3

//export mscclppGoUniqueID
func mscclppGoUniqueID(out *C.mscclpp_unique_id_t, address *C.char, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	id, err := newID(C.GoString(address))
	if err != nil {
		return fail(f, fmt.Errorf("unique id: %w", err))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(out)), len(id)), id[:])
	return C.MSCCLPP_SUCCESS
}

func newID(address string) (id bootstrap.UniqueID, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // for a name server
	defer cancel()
	if address != "" {
		l, id, err := bootstrap.Listen(ctx, net.JoinHostPort(address, "0"))
		if err == nil {
			listeners.add(id, l)
		}
		return id, err
	}
	l, id, err := listenOnAll(ctx)
	if err == nil {
		listeners.add(id, l)
	}
	return id, err
}

// listenOnAll listens at all addresses of this host.
func listenOnAll(ctx context.Context) (*net.TCPListener, bootstrap.UniqueID, error) {
	addresses, err := ownAddresses()
	if err != nil {
		return nil, bootstrap.UniqueID{}, err
	}
	l, err := (&net.ListenConfig{KeepAlive: -1}).Listen(ctx, "tcp", ":0")
	if err != nil {
		return nil, bootstrap.UniqueID{}, fmt.Errorf("%w: %w", framework.ErrUnavailable, err)
	}
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	var at []netip.AddrPort
	for _, a := range addresses {
		at = append(at, netip.AddrPortFrom(a, port))
	}
	id, err := bootstrap.NewUniqueID(at...)
	if err != nil {
		_ = l.Close()
		return nil, bootstrap.UniqueID{}, err
	}
	return l.(*net.TCPListener), id.Listening(), nil
}

// ownAddresses lists addresses at which others reach this host, those of IPv4 first; where
// there are none, the loopback address.
func ownAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", framework.ErrUnavailable, err)
	}
	var four, six []netip.Addr
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		if ip := p.Addr().Unmap(); ip.Is4() {
			four = append(four, ip)
		} else {
			six = append(six, ip)
		}
	}
	out := append(four, six...)
	if len(out) == 0 {
		ip, err := netip.ParseAddr(loopback.Address(false))
		return []netip.Addr{ip}, err
	}
	return out[:min(len(out), mostAddresses)], nil
}
