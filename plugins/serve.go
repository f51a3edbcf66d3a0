package plugins

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plugins/internal/fdsock"
	"github.com/mscclpp-go/mscclpp/plugins/internal/wire"
)

// closeBound is what a transport gets to clean up once its host is gone. The kernel
// frees everything else with the process.
const closeBound = 50 * time.Millisecond

// Serve is the main function of a plugin: it answers the host's calls with the
// transport that create makes, and does not return. C is the struct of the transport's
// options; see SchemaOf. Serve calls create once, when the host has sent the options.
// Create may fail with any class of error.
//
// Call Serve first in main, not in another goroutine. All output of the process, through Go or
// through C, before or after, goes to the host's log, and so do its messages by log/slog.
//
// The process ends when its host ends, in whatever way. If the transport has a method
// `Shutdown() error`, that is called first and has 50 ms. Interrupts and termination
// signals for the whole job are ignored: the host decides.
func Serve[C any](create func(options C) (framework.Transport, error)) {
	os.Exit(serve(factory(create)))
}

func serve(f wire.Factory) int {
	if os.Getenv(cookieKey) != cookieValue {
		fmt.Fprintf(os.Stderr, "%s is a transport plugin of mscclpp-go. It is started by a job; see `mscclpp-run plugins`.\n", filepath.Base(os.Args[0]))
		return 2
	}
	outliveJobSignals()
	log := openLog()
	takeFolder()
	if err := protectStdout(); err != nil {
		log.Error("plugin cannot start", "error", err)
		return 1
	}
	fds, err := openControl()
	if err != nil {
		log.Error("plugin cannot start", "error", err)
		return 1
	}
	f.Host = func(abi uint32, layouts []string) { host.Store(&HostInfo{abi, layouts}) }
	server := wire.NewServer(f, fds)
	go func() {
		<-fds.Done()
		shutDown(server)
		os.Exit(0)
	}()
	listener, address, err := listen()
	if err != nil {
		log.Error("plugin cannot start", "error", err)
		return 1
	}
	g := grpc.NewServer(wire.ServerOptions()...)
	wire.Register(g, server)
	if err := shakeHands(address); err != nil {
		log.Error("plugin cannot start", "error", err)
		return 1
	}
	err = g.Serve(listener)
	log.Error("plugin cannot serve", "error", err)
	shutDown(server)
	return 1
}

// HostInfo is what a host says of itself when it sends the options: which images of
// kernels it takes.
type HostInfo struct {
	DeviceABI uint32   // of handles and entry points (kernel.ABI); 0: it does not say
	Layouts   []string // of the arguments that it may pass (kernel.Layout); empty: it does not say
}

var host atomic.Pointer[HostInfo]

// Host returns what the host of this plugin said. It is for the function that Serve calls,
// and what comes later; before, and in other programs, the result is zero.
func Host() HostInfo {
	if h := host.Load(); h != nil {
		return *h
	}
	return HostInfo{}
}

// shutDown closes the transport, if it wants that, and removes the socket of a start
// that the host did not live to finish.
func shutDown(server *wire.Server) {
	removeOwnSocket()
	closer, ok := server.Transport().(interface{ Shutdown() error })
	if !ok {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := closer.Shutdown(); err != nil {
			slog.Warn("transport shutdown", "error", err)
		}
	}()
	select {
	case <-done:
	case <-time.After(closeBound):
	}
}

// handshakeOut is descriptor 1 as the host made it.
var handshakeOut *os.File

// protectStdout keeps what was descriptor 1 for the handshake. A library that prints
// would otherwise break the start, or be lost afterwards: it now prints to the log.
func protectStdout() error {
	out, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	if err := unix.Dup3(2, 1, 0); err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	handshakeOut = os.NewFile(uintptr(out), "handshake")
	return nil
}

// openControl takes over the inherited control socket and checks its maker.
func openControl() (*fdsock.Conn, error) {
	file, err := inheritedSocket(controlKey)
	if err != nil {
		return nil, err
	}
	return fdsock.New(file, fdsock.Plugin)
}

// inheritedSocket takes over the socket whose number is in a variable, and checks its maker.
func inheritedSocket(key string) (*os.File, error) {
	value := os.Getenv(key)
	fd, err := strconv.Atoi(value)
	if err != nil || fd < firstFile {
		return nil, fmt.Errorf("%w: %s=%q: expected the number of an inherited socket", framework.ErrInvalid, key, value)
	}
	unix.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), key)
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, fmt.Errorf("%w: %s=%d: expected a socket: %w", framework.ErrInvalid, key, fd, err)
	}
	if int(cred.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%w: the host runs as user %d, expected %d", framework.ErrInvalid, cred.Uid, os.Geteuid())
	}
	return file, nil
}

// openLog sends log/slog to the host: JSON lines on standard error, which the host
// takes apart again.
func openLog() *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(os.Getenv(logLevelKey))); err != nil {
		level = slog.LevelInfo
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	slog.SetDefault(log)
	return log
}
