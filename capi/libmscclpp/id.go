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

	"github.com/mscclpp-go/mscclpp/capi/internal/meeting"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/internal/loopback"
)

// places are where ranks ask about ids that this process has made, by the address that the program has given, "" for
// those of this host.
var places struct {
	sync.Mutex
	at map[string]*place
}

type place struct {
	*meeting.Place
	addresses []netip.AddrPort
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

// newID makes an id that leads to this process, which need not be a rank.
func newID(address string) (bootstrap.UniqueID, error) {
	places.Lock()
	defer places.Unlock()
	p := places.at[address]
	if p == nil {
		var err error
		if p, err = newPlace(address); err != nil {
			return bootstrap.UniqueID{}, err
		}
		if places.at == nil {
			places.at = make(map[string]*place)
		}
		places.at[address] = p
	}
	id, err := bootstrap.NewUniqueID(p.addresses...)
	if err == nil {
		p.Enroll((*[len(id)]byte)(&id))
	}
	return id, err
}

func newPlace(address string) (*place, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // for a name server
	defer cancel()
	listen := listenOnAll
	if address != "" {
		listen = func(ctx context.Context) (*net.TCPListener, bootstrap.UniqueID, error) {
			return bootstrap.Listen(ctx, net.JoinHostPort(address, "0"))
		}
	}
	l, id, err := listen(ctx)
	if err != nil {
		return nil, err
	}
	return &place{Place: meeting.Serve(l), addresses: id.Addresses()}, nil
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
