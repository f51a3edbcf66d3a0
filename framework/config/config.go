package config

// Config is the configuration of one rank of a job. The zero value is not useful;
// see Default.
type Config struct {
	// Device is where the program's buffers are and where its kernels run: host,
	// cuda, cuda:N (N counts the GPUs that are visible), hip, hip:N, one that devices names,
	// with a number or without, or auto (an NVIDIA GPU if there is one, else an AMD GPU, else
	// one that devices names, else the host). Without a number it is the device of the local rank.
	// Empty: what the program asks for, host if it asks for nothing.
	Device string `config:"device"`

	// Devices names the back ends of devices that do not come with mscclpp-go, by the type
	// of their devices.
	Devices map[string]DeviceBackend `config:"devices"`

	// GPUMemory is the kind of memory of allocations on a GPU, or on a device that devices
	// names: device; host for memory of the host that the GPU reaches, which joins GPUs that
	// cannot reach each other's memory, such as L4, A10 and RTX cards, at the speed of their
	// PCIe slots; or, on NVIDIA GPUs, fabric for memory of the device that other hosts of one
	// NVLink network can map, where the driver has it.
	GPUMemory string `config:"gpu_memory"`

	// GPUCode is the form in which NVIDIA GPUs get kernels: auto, machine code where the folders
	// of plugins have it for the GPU (files NAME-sm_90.cubins, which make machine-code
	// makes), else PTX, which the driver compiles when it first meets it on a machine; or
	// ptx, always PTX.
	GPUCode string `config:"gpu_code"`

	// GDRCopy lets the host store signals that arrive over ib-nonatomic into memory of an
	// NVIDIA GPU, by NVIDIA's GDRCopy 2 where that is installed: kernels then poll memory of
	// their own. Otherwise they poll memory of the host over the bus. The variable
	// MSCCLPP_GDRCOPY_LIBRARY names the library where it is not found as libgdrapi.so.2.
	GDRCopy bool `config:"gdrcopy"`

	// Transports lists the transports that may be used, in order of preference. A
	// pair of ranks uses the first one over which both can reach each other. All ranks
	// need the same list, also those on hosts without the hardware for one of them: it is
	// passed over there, with a warning. Empty: those that suit the device, shm on the
	// host, cudaipc on NVIDIA GPUs, and what devices.NAME.transports says on others; on
	// the first two tcp as well if the ranks are on several hosts.
	Transports []string `config:"transports"`

	// Transport holds the options of each transport under its name. The transport
	// owns the schema: `mscclpp-run plugins --options` prints it.
	Transport map[string]map[string]any `config:"transport"`

	// Plugins says where transports come from.
	Plugins Plugins `config:"plugins"`

	// Comm has the limits of a communicator.
	Comm Comm `config:"comm"`

	// Collectives steers the choice of algorithms.
	Collectives Collectives `config:"collectives"`

	// Bootstrap says how ranks find each other.
	Bootstrap Bootstrap `config:"bootstrap"`

	// Check turns on checks that cost time.
	Check Check `config:"check"`

	// Launch is how mscclpp-run starts and ends programs.
	Launch Launch `config:"launch"`

	// Observe is what can be seen of a job.
	Observe Observe `config:"observe"`

	// Log is where messages go.
	Log Log `config:"log"`
}

// builtInTransports are those that suit the devices that come with mscclpp-go.
var builtInTransports = map[string][]string{"host": {"shm"}, "cuda": {"cudaipc"}, "hip": {"xgmi"}}

// TransportsOn returns the transports for ranks whose device has the type.
func (c *Config) TransportsOn(deviceType string) []string {
	for _, list := range [][]string{c.Transports, c.Devices[deviceType].Transports, builtInTransports[deviceType]} {
		if len(list) > 0 {
			return list
		}
	}
	return []string{"shm"}
}

// DeviceBackend is a back end of devices: a shared object with a table of
// mscclpp/device_backend.h. It is loaded into the rank's process when a job uses its devices.
type DeviceBackend struct {
	// Path is the absolute path of the shared object, on every host of the job. A process
	// that has more rights than its user loads none. No other user may be able to change the
	// file, or what leads to it.
	Path string `config:"path"`

	// SHA256 is the checksum that the shared object must have, in hexadecimal. A copy of what
	// was checked is loaded; libraries that it needs are not covered. Empty: not checked.
	SHA256 string `config:"sha256"`

	// Transports are those that suit its devices: where transports is empty, a job on them
	// uses these.
	Transports []string `config:"transports"`

	// Options are lines key=value for the back end, which knows what they mean.
	Options []string `config:"options"`
}

// Plugins says where transports come from.
type Plugins struct {
	// Dirs are searched in order for programs named mscclpp-transport-NAME, and after
	// them the folder plugins beside the running program, or if that has no plugins
	// ../lib/mscclpp/plugins seen from there. One that is not there is passed over, and
	// so is one that another user can change; `mscclpp-run plugins` shows it. Folders that are not absolute are seen from the
	// working directory of each process.
	Dirs []string `config:"dirs"`

	// Path names the program of a transport directly, by transport name. No other is
	// used for it then.
	Path map[string]Pinned `config:"path"`

	// StartTimeout bounds the start of one plugin.
	StartTimeout Duration `config:"start_timeout"`

	// Embed lists transports to run inside the rank's process instead of as a
	// plugin, for debugging. Only transports built into the program can be named.
	Embed []string `config:"embed"`
}

// Pinned is one plugin program.
type Pinned struct {
	// File is the absolute path of the program, on every host of the job. One that is not
	// absolute is an error.
	File string `config:"file"`

	// SHA256 is the checksum that the program must have, in hexadecimal. A copy of what
	// was checked is executed. Files beside the program are not covered, so no other user may
	// be able to write to its folder. Empty: not checked.
	SHA256 string `config:"sha256"`
}

// Comm has the limits of a communicator.
type Comm struct {
	// Scratch is the memory per rank that collectives use for data on its way. 0:
	// 32MiB on the host, on a GPU 64MiB for each rank, 256MiB at most. Packets without a flag take a sixth more on a
	// GPU, 16MiB at most, among at most 8 ranks, and half as much between two. All ranks need the same.
	Scratch Bytes `config:"scratch"`

	// Deadline ends every wait of a kernel. 0: a wait ends when the data comes or
	// when a rank dies, however long a slow rank takes.
	Deadline Duration `config:"deadline"`

	// MaxBlocks caps the thread blocks of one kernel, so that collectives leave room
	// for the program's own kernels. 0: as many as are fastest. All ranks need the same.
	MaxBlocks int `config:"max_blocks"`
}

// Collectives steers the choice of algorithms.
type Collectives struct {
	// Table overrides the built-in choice. The first row that fits is used. All ranks
	// need the same.
	Table []Choice `config:"table"`

	// Plans are execution plans: each is offered under its name, and chosen for the calls that
	// it serves unless a row of the table comes before. All ranks need the same.
	Plans []Plan `config:"plans"`

	// Sharing is the number of ranks whose kernels run on one GPU at a time. 0: what
	// the ranks find out, which is right unless other communicators share it as well.
	Sharing int `config:"sharing"`

	// CopyEngines lets the copy engines of GPUs move and reduce large messages. All
	// ranks need the same.
	CopyEngines bool `config:"copy_engines"`

	// CopyScratch bounds the memory of a GPU through which copy engines pass large reductions,
	// and large messages in ordinary buffers. Each call allocates its part, unless earlier
	// ones have; where a GPU has none left, kernels serve it. All ranks need the same.
	CopyScratch Bytes `config:"copy_scratch"`

	// Preload loads the kernels of all collectives and types when the job starts, where there
	// is machine code of them. Else each is loaded by the first call that needs it.
	Preload bool `config:"preload"`

	// Lines says whether kernels may send packets of 128 bytes, which need links that
	// never tear them: auto (if NVLink joins every two GPUs of the host), always or
	// never.
	Lines string `config:"lines"`
}

// Plan is a file of an execution plan, or a folder of such files.
type Plan struct {
	// Path is the file, .json or .json.gz, or the folder. Plans of a folder that are for
	// other numbers of ranks are passed over.
	Path string `config:"path"`

	// Unverified takes plans that `mscclpp-run plan check` does not call right. Else one
	// such plan ends the start of the job.
	Unverified bool `config:"unverified"`

	// Packets are the bytes of each packet of plans that communicate by packets: 8, the format
	// LL8, or 16, LL16. 0: 16. All ranks need the same.
	Packets int `config:"packets"`
}

// Choice is one row of the table of algorithms. An empty field fits everything.
type Choice struct {
	// Collective is the operation: allreduce, allgather, reducescatter, broadcast,
	// reduce, alltoall, alltoallv, gather, scatter, sendrecv or barrier. Rows of messages
	// (from alltoallv to sendrecv) have no effect, which the log says at level info.
	Collective string `config:"collective"`

	// MaxBytes is the largest size for which the row is used. 0: any.
	MaxBytes Bytes `config:"max_bytes"`

	// MinRanks is the smallest number of ranks for which the row is used.
	MinRanks int `config:"min_ranks"`

	// MaxRanks is the largest number of ranks for which the row is used. 0: any.
	MaxRanks int `config:"max_ranks"`

	// Registered limits the row to registered (true) or other (false) buffers.
	Registered *bool `config:"registered"`

	// Blocks is the number of thread blocks of the launch on a GPU. 0: what the
	// library thinks right.
	Blocks int `config:"blocks"`

	// Threads is the number of threads of each block. 0: what the library thinks
	// right.
	Threads int `config:"threads"`

	// Algorithm is the name of the algorithm; `mscclpp-run bench COLLECTIVE
	// --algorithm ?` lists them. One that does not exist ends the start of the job. A row
	// whose algorithm is not offered here, as that of a GPU in a job on the host, is passed
	// over, and the log reports it.
	Algorithm string `config:"algorithm"`
}

// Bootstrap says how ranks find each other.
type Bootstrap struct {
	// Interface is the network interface for set-up messages between hosts, by name
	// or as CIDR prefix. Empty: the one that routes to the first rank.
	Interface string `config:"interface"`

	// Family restricts the addresses at which ranks listen and call each other: inet,
	// inet6, or empty for both. All ranks need the same.
	Family string `config:"family"`

	// HostID overrides the identity of this host, by which ranks decide whether they
	// share memory. Empty: the boot id of the kernel.
	HostID string `config:"host_id"`

	// SecretFile holds the secret shared by all ranks of a job of several hosts. Each
	// connection proves that it knows it. A path that is not absolute is seen from the
	// working directory of each rank.
	SecretFile string `config:"secret_file"`

	// Insecure allows a job of several hosts without a secret: any process that reaches
	// the port can then join it.
	Insecure bool `config:"insecure"`

	// Timeout bounds the time in which all ranks have to appear.
	Timeout Duration `config:"timeout"`

	// Heartbeat is the interval of signs of life between hosts. A host is taken for
	// dead after eight of them were missed.
	Heartbeat Duration `config:"heartbeat"`
}

// Check turns on checks that cost time.
type Check struct {
	// Signatures says when ranks compare what they were called with (collective,
	// count, type, operation): never, stall (behind each call on the host, and while a
	// call waits unusually long) or always (before any data moves). All ranks need the
	// same.
	Signatures string `config:"signatures"`

	// Overlap refuses groups of messages that receive into a buffer which another message
	// of the group uses. Without the check such a buffer holds anything afterwards, as with
	// NCCL.
	Overlap bool `config:"overlap"`
}

// Launch is how mscclpp-run starts and ends programs.
type Launch struct {
	// Bind ties each rank to processors: none, core, numa, socket, or auto (numa when
	// the host has several nodes, else none).
	Bind string `config:"bind"`

	// TagOutput puts the rank in front of each line of output.
	TagOutput bool `config:"tag_output"`

	// Timestamp puts the time in front of each line of output.
	Timestamp bool `config:"timestamp"`

	// OutputDir receives the output of each rank in files of its own, rank-N.out and
	// rank-N.err. A path that is not absolute is seen from where mscclpp-run was started.
	OutputDir string `config:"output_dir"`

	// Linger is the time that the other ranks have, after one has failed, to notice
	// and to report it before they are ended.
	Linger Duration `config:"linger"`

	// Grace is the time between asking a rank to end (SIGTERM) and killing it. After a
	// failure, closing takes a rank at most a fifth of it where a plugin does not answer.
	Grace Duration `config:"grace"`
}

// Observe is what can be seen of a job.
type Observe struct {
	// Enabled lets mscclpp-run status and trace see the ranks, and keeps what is written down
	// after a failure. It takes 20 KiB a rank, and a few stores a call.
	Enabled bool `config:"enabled"`

	// Trace is the file for a trace of all ranks that mscclpp-run starts here, which
	// Perfetto and mscclpp-run trace read. %n is replaced by the number of the host in the
	// job. Ranks that others start, or mscclpp-run over ssh, give their records to rank 0 when
	// they close the job, which writes the file on its host. Empty: none is written.
	Trace string `config:"trace"`

	// Flight is the folder in which mscclpp-run makes one for each job that has failed, with
	// the last events of its ranks: none, or a path. Empty: mscclpp-go/flight in the cache
	// of the user. The newest sixteen are kept.
	Flight string `config:"flight"`

	// Report prints at the end of a job which rank came late how often, and which link was
	// slower than its kind, to standard error, or to the log of rank 0. Ranks write records
	// then.
	Report bool `config:"report"`

	// Metrics is where mscclpp-run answers Prometheus while the job runs: HOST:PORT, a PORT
	// of the loopback address, or unix:PATH for a socket that this user alone can open. Port
	// 0 takes a free one. Ranks write records then. Empty: nowhere.
	Metrics string `config:"metrics"`

	// OTLP is the collector of OpenTelemetry to which mscclpp-run sends the same numbers, by
	// HTTP: http://HOST:4318, or with a path. The variables OTEL_EXPORTER_OTLP_HEADERS and
	// OTEL_METRIC_EXPORT_INTERVAL count. Empty: none.
	OTLP string `config:"otlp"`

	// Graphs says that of the calls of a graph on GPUs one in so many is measured there, if
	// records are on when it is captured; 1: each, 0: none. Each takes some 7 µs of every launch,
	// also after records were switched off.
	Graphs uint32 `config:"graphs"`
}

// Log is where messages go.
type Log struct {
	// Level is the least important level that is shown: debug, info, warn, error or
	// none.
	Level string `config:"level"`

	// File receives the messages instead of standard error; %h is replaced by the
	// host name, %p by the process id, %r by the rank. A path that is not absolute is
	// seen from the working directory of each rank.
	File string `config:"file"`

	// Format is text or json.
	Format string `config:"format"`

	// DumpSignal is the signal at which ranks print the state of every channel to standard
	// error: SIGUSR1 or SIGUSR2, or none. mscclpp-run forwards both. Empty: what the program
	// asks for, none if it asks for nothing.
	DumpSignal string `config:"dump_signal"`
}
