package plugins

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plugins/internal/fdsock"
	"github.com/mscclpp-go/mscclpp/plugins/internal/wire"
)

// closeBound is what a transport gets to clean up once its host is gone. The kernel
// frees everything else with the process.
const closeBound = 50 * time.Millisecond

// standard keeps the files of descriptors 1 and 2 reachable. Their variables are
// replaced below and by go-plugin; once collected, they would close the descriptors.
var standard = [2]*os.File{os.Stdout, os.Stderr}

// Serve is the main function of a plugin: it answers the host's calls with the
// transport that create makes, and does not return. C is the struct of the transport's
// options; see SchemaOf. Serve calls create once, when the host has sent the options.
// Create may fail with any class of error.
//
// Call Serve first in main. Whatever the process prints, through Go or through C,
// before or after, goes to the host's log, and so does what it logs with log/slog.
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
	// A log line after the death of the host must not kill the process before it
	// has cleaned up.
	signal.Ignore(unix.SIGPIPE)
	outliveJobSignals()
	log := openLog()
	if err := protectStdout(); err != nil {
		log.Error("plugin cannot start", "error", err)
		return 1
	}
	fds, err := openControl()
	if err != nil {
		log.Error("plugin cannot start", "error", err)
		return 1
	}
	create := f.Create
	f.Create = func(options []byte) (framework.Transport, error) {
		// go-plugin would send what is printed through these by gRPC: late, and
		// not at all if the process crashes.
		os.Stdout, os.Stderr = standard[1], standard[1]
		return create(options)
	}
	f.Host = func(abi uint32, layouts []string) { host.Store(&HostInfo{abi, layouts}) }
	server := wire.NewServer(f, fds)
	go func() {
		<-fds.Done()
		shutDown(server)
		os.Exit(0)
	}()
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  handshake,
		VersionedPlugins: versions(server),
		GRPCServer: func(o []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(o, wire.ServerOptions()...)...)
		},
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: standard[1], JSONFormat: true}),
	})
	shutDown(server)
	return 0
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
	removeSocket(os.Getenv(goplugin.EnvUnixSocketDir))
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

// removeSocket removes sockets in dir and, when it is empty then, the folders that
// the host made for them.
func removeSocket(dir string) {
	entries, err := os.ReadDir(dir)
	if dir == "" || err != nil {
		return // the host removed it once it was connected
	}
	for _, e := range entries {
		if e.Type()&os.ModeSocket != 0 {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	if os.Remove(dir) == nil && isSocketFolder(filepath.Dir(dir)) {
		os.Remove(filepath.Dir(dir))
	}
}

// protectStdout keeps file descriptor 1 for the handshake. A C library that prints
// would otherwise break the start, or be lost afterwards: it now prints to the log.
func protectStdout() error {
	out, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	if err := unix.Dup3(2, 1, 0); err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	os.Stdout = os.NewFile(uintptr(out), "handshake")
	return nil
}

// openControl takes over the inherited control socket and checks who made it.
func openControl() (*fdsock.Conn, error) {
	value := os.Getenv(controlKey)
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%w: %s=%q: expected the number of an inherited socket", framework.ErrInvalid, controlKey, value)
	}
	unix.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), "control")
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, fmt.Errorf("%w: %s=%d: expected a socket: %w", framework.ErrInvalid, controlKey, fd, err)
	}
	if int(cred.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%w: the host runs as user %d, expected %d", framework.ErrInvalid, cred.Uid, os.Geteuid())
	}
	return fdsock.New(file, fdsock.Plugin)
}

// outliveJobSignals ignores signals that a resource manager or a terminal sends to
// every process of a job: the rank may want to finish, and needs its transports to.
// It gets a termination signal from the kernel when the host is dead, which is told
// apart by the parent.
func outliveJobSignals() {
	host := os.Getppid()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	go func() {
		for range signals {
			if os.Getppid() != host {
				removeSocket(os.Getenv(goplugin.EnvUnixSocketDir))
				os.Exit(0)
			}
		}
	}()
}

// openLog sends log/slog to the host: JSON lines on standard error, which the host
// takes apart again.
func openLog() *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(os.Getenv(logLevelKey))); err != nil {
		level = slog.LevelInfo
	}
	log := slog.New(slog.NewJSONHandler(standard[1], &slog.HandlerOptions{Level: level}))
	slog.SetDefault(log)
	return log
}
