"""What one process can see: names, errors, bad input, and how a communicator ends. Run as a job of one rank."""

import array
import contextlib
import ctypes
import gc
import mmap
import os
import pickle
import struct
import sys
import threading
import unittest
import warnings
import weakref

import mscclpp
from mscclpp import _buffers, _environ, _library, _types


class Failing(mscclpp.Fifo):
    def __init__(self):
        pass

    def close(self):
        raise mscclpp.ClosedError(5, "the communicator is gone")


class Interface(unittest.TestCase):
    def test_close_hides_no_error_of_a_block(self):
        with self.assertRaisesRegex(ValueError, "of the program"):
            with Failing():
                raise ValueError("of the program")
        with self.assertRaises(mscclpp.ClosedError):
            with Failing():
                pass

    def test_import_is_light(self):
        heavy = {"numpy", "torch", "cupy", "jax", "typing", "dataclasses", "subprocess", "asyncio", "multiprocessing", "inspect"}
        import subprocess
        code = "import sys; before = set(sys.modules); import mscclpp; print(*(set(sys.modules) - before))"
        loaded = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual(heavy & set(loaded), set())
        self.assertIn("mscclpp", loaded)
        own = {name.partition(".")[2] for name in loaded if name.startswith("mscclpp.")}
        self.assertEqual(own & {"language", "torch", "utils", "_driver", "_nvrtc", "_dlpack", "_groups", "_gpu_buffer"}, set())

    def test_all_names_exist(self):
        for name in mscclpp.__all__:
            self.assertTrue(getattr(mscclpp, name).__doc__ or name == "__version__", name)

    def test_public_names_have_types(self):
        import importlib

        import signatures
        modules = "ext inference moe utils default_algos language.channel language.collectives language.general language.loop language.program language.rank"
        seen = 0
        for name in ["", *modules.split(), "language.thread_block_group", "language.utils"]:
            missing, count = signatures.look(importlib.import_module(f"mscclpp.{name}".rstrip(".")))
            self.assertEqual(missing, [], name)
            seen += count
        self.assertGreater(seen, 250)

    def test_names_of_mscclpp(self):
        """A name of MSCCL++'s module is here, or its error and the documentation say what is instead."""
        theirs = """Device DeviceType Communicator Connection connect_nvls_collective EndpointConfig EndpointConfigIb IbMode ErrorCode Fifo Semaphore
            Host2DeviceSemaphore Host2HostSemaphore numa ProxyService RegisteredMemory PortChannel MemoryChannel MemoryDevice2DeviceSemaphore TcpBootstrap
            Transport TransportFlags DataType Executor ExecutionPlan PacketType RawGpuBuffer ReduceOp env version __version__ is_bulk_supported
            is_nvls_supported npkit get_include get_lib Algorithm AlgorithmBuilder AlgorithmCollection CommGroup GpuBuffer GpuBufferGranularity
            DslCompiler NativeCodeCompiler compile compile_native AlgoSpec AlgorithmCollectionBuilder""".split()
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "python.md"), encoding="utf-8") as f:
            page = f.read()
        for name in theirs:
            if name != "__version__":
                self.assertRegex(page, rf"`([^`\n]*\b)?{name}\b")
            if name not in (*mscclpp.__all__, "__version__"):
                with self.assertRaisesRegex(AttributeError, f"no attribute '{name}': .{{15,}}"):
                    getattr(mscclpp, name)
        with self.assertRaisesRegex(AttributeError, "no attribute 'proxi'$"):
            mscclpp.proxi

    def test_versions(self):
        self.assertTrue(mscclpp.library_version())
        self.assertTrue(mscclpp.supports("split"))
        self.assertFalse(mscclpp.supports("teleport"))

    def test_environment(self):
        one = _environ.Env({"MSCCLPP_CACHE_DIR": "/c", "MSCCLPP_LOG__LEVEL": "debug", "MSCCLPP_IB_GID_INDEX": "3", "HOME": "/h"})
        self.assertEqual((one.cache_dir, one.configuration, one.ib_gid_index, one.debug), ("/c", {"log.level": "debug"}, 3, ""))
        with self.assertRaises(AttributeError):
            one.debug = "x"
        self.assertIs(mscclpp.env(), mscclpp.env())
        self.assertIn("cache_dir", repr(mscclpp.env()))
        self.assertEqual(mscclpp.version["version"], mscclpp.__version__)
        with self.assertRaises(AttributeError):
            mscclpp.no_such_name

    def test_raw_buffer(self):
        for shape, text in ((0, "positive"), ("a", "positive")):
            with self.assertRaisesRegex(ValueError, text):
                mscclpp.RawGpuBuffer(shape, "host")
        with self.assertRaisesRegex(ValueError, "Shape must be a tuple-like or an integer."):
            mscclpp.GpuBuffer(1.5)
        with self.assertRaisesRegex(ValueError, "Shape must be positive."):
            mscclpp.GpuBuffer((2, 0))
        raw = mscclpp.RawGpuBuffer(4096, "host")
        self.assertEqual((raw.nelems(), raw.bytes(), raw.device_id(), raw.__dlpack_device__()), (4096, 4096, -1, (1, 0)))
        with self.make_one() as comm:
            comm.broadcast(raw)
        capsule, left = raw.to_dlpack("torch.float16", (2, 3)), weakref.ref(raw)
        del raw
        gc.collect()
        self.assertIsNotNone(left(), "a capsule keeps the memory")
        del capsule
        gc.collect()
        self.assertIsNone(left())

    def make_one(self):
        return mscclpp.Communicator(mscclpp.UniqueId.create("127.0.0.1"), 0, 1)

    def test_utils(self):
        from mscclpp import utils
        self.assertEqual(utils.pack(1, True, ctypes.c_size_t(2), b"ab", 1.5), struct.pack("<iiQ", 1, 1, 2) + b"ab" + struct.pack("<d", 1.5))
        memory = array.array("f", [1])
        self.assertEqual(utils.pack(memory), struct.pack("<Q", memory.buffer_info()[0]))
        self.assertEqual(utils.pack(mscclpp.DeviceHandle(b"raw")), b"raw")
        with self.assertRaisesRegex(RuntimeError, "Unsupported type"):
            utils.pack(object())
        self.assertFalse(utils.is_torch_tensor(memory))
        self.assertEqual(utils.torch_dtype_to_mscclpp_dtype("torch.bfloat16"), mscclpp.DataType.bfloat16)
        with self.assertRaisesRegex(ValueError, "Unknown data type"):
            utils.torch_dtype_to_mscclpp_dtype("torch.complex64")
        with self.assertRaisesRegex(mscclpp.InvalidUsage, "expected a GPU"):
            utils._device("host")
        with self.assertRaises(mscclpp.InvalidUsage):
            utils.KernelBuilder()

    def test_without_gpu(self):
        """A machine without driver and compiler says so."""
        code = """
import mscclpp
from mscclpp import utils
for function, text in ((utils.get_device_arch, "CUDA driver"), (lambda: utils.compile_source("", arch="sm_90"), "NVRTC: not found")):
    try:
        function()
    except mscclpp.UnavailableError as problem:
        assert text in str(problem), problem
    else:
        raise SystemExit(text)
"""
        import subprocess
        nowhere = {**os.environ, "MSCCLPP_CUDA_LIBRARY": "/nowhere/libcuda.so.1", "MSCCLPP_NVRTC_LIBRARY": "/nowhere/libnvrtc.so"}
        done = subprocess.run([sys.executable, "-c", code], env=nowhere, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_groups(self):
        with self.assertRaisesRegex(RuntimeError, "Either the interface or mpi_group need to be specified"):
            mscclpp.CommGroup()
        with self.assertRaises(mscclpp.UnsupportedError):
            mscclpp.CommGroup(interfaceIpPortTrio="eth0:1.2.3.4:5000")

    def test_unique_id(self):
        one = mscclpp.UniqueId.create("127.0.0.1")
        self.assertEqual(pickle.loads(pickle.dumps(one)), one)
        self.assertNotIn(repr(one.bytes)[2:10], repr(one))
        with self.assertRaises(mscclpp.InvalidUsage):
            mscclpp.UniqueId(b"short")
        with mscclpp.Communicator(one, 0, 1) as comm:
            self.assertEqual((comm.rank, comm.size, comm.device), (0, 1, "host"))


class Errors(unittest.TestCase):
    def test_error_has_code_text_and_rank(self):
        with self.assertRaises(mscclpp.InvalidUsage) as caught:
            mscclpp.Communicator(settings={"no.such.key": 1})
        e = caught.exception
        self.assertIsInstance(e, ValueError)
        self.assertEqual(e.code, mscclpp.ErrorCode.InvalidUsage)
        self.assertIn('unknown key "no"', str(e))
        self.assertIsNone(e.rank)
        self.assertEqual(e.args, (3, e.text))
        again = pickle.loads(pickle.dumps(e))
        self.assertEqual((type(again), again.args), (type(e), e.args))

    def test_missing_ranks_are_named(self):
        one = mscclpp.UniqueId.create("127.0.0.1")
        with self.assertRaises((mscclpp.TimeoutError, mscclpp.PeerError)) as caught:
            mscclpp.Communicator(one, 0, 2, timeout=0.2)
        self.assertIn("rank 1 is missing", str(caught.exception))

    def test_id_needs_a_place(self):
        for arguments in ((mscclpp.UniqueId(bytes(128)), None, None), (None, 0, 1)):
            with self.assertRaises(mscclpp.InvalidUsage):
                mscclpp.Communicator(*arguments)


class Foreign:
    """An array of some other package."""

    def __init__(self, **interface):
        self.__dict__.update(interface)


class Input(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.comm = mscclpp.Communicator(mscclpp.UniqueId.create("127.0.0.1"), 0, 1)

    @classmethod
    def tearDownClass(cls):
        cls.comm.close()

    def refused(self, text, *arguments, call="all_reduce", kind=mscclpp.InvalidUsage, **named):
        with self.assertRaises(kind) as caught:
            getattr(self.comm, call)(*arguments, **named)
        self.assertIn(text, str(caught.exception))

    def test_not_memory(self):
        self.refused("None", None)
        self.refused("list", [1.0])
        self.refused("float", 1.0)

    def test_not_contiguous(self):
        self.refused("not contiguous", memoryview(bytearray(16))[::2])

    def test_read_only(self):
        self.refused("read-only", b"1234")
        self.refused("read-only", array.array("B", [1] * 4), b"1234")
        self.refused("read-only", b"1234", 0, call="recv")

    def test_types(self):
        self.refused("one type", array.array("f", [1]), array.array("i", [1]))
        self.refused("expected one of float32", array.array("h", [1]))
        self.refused("byte order", memoryview((b"12345678")).cast("@h"))

    def test_sizes(self):
        self.refused("send has 8 bytes, recv 4", array.array("f", [1, 2]), array.array("f", [1]))
        self.refused("counts", array.array("f", [1]), [1, 2], array.array("f", [1]), [1], call="all_to_all_v")
        self.refused("within the 1", array.array("f", [1]), [1], array.array("f", [1]), [1], [1], call="all_to_all_v")
        self.refused("within the 1", array.array("f", [1]), [-1], array.array("f", [1]), [1], call="all_to_all_v")

    def test_device(self):
        gpu = Foreign(__cuda_array_interface__={"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3})
        self.refused("memory of a GPU: expected memory of host", gpu)
        self.refused("stream 7", array.array("f", [1]), stream=7)

    def test_other_values(self):
        self.refused("algorithm", array.array("f", [1]), algorithm="no-such")
        self.refused("root", array.array("f", [1]), root=5, call="broadcast")
        self.refused("float128", "allreduce", "float128", call="prepare")
        numbers, memory = array.array("f", [1]), self.comm.alloc(64)
        for op in (99, -1, 1 << 40, "sum", None):
            self.refused("expected one of ReduceOp: SUM", numbers, op=op)
        self.refused("SUM with a scale", numbers, scale=2.0)
        self.refused("PREMUL_SUM without a scale", numbers, op=mscclpp.ReduceOp.PREMUL_SUM)
        self.refused("scale 'x': expected a name and a number", numbers, op=mscclpp.ReduceOp.PREMUL_SUM, scale="x")
        self.refused("algorithm b'ring'", numbers, algorithm=b"ring")
        # C would take the last 32 or 64 bits of these.
        for call, arguments, text in (
                ("broadcast", (numbers, None, 1 << 40), "root"), ("reduce", (numbers, None, 0, 1 << 32), "root"), ("gather", (numbers, numbers, 1 << 32), "root"),
                ("scatter", (numbers, numbers, 1 << 32), "root"), ("send", (numbers, 1 << 32), "peer"), ("recv", (numbers, 1 << 32), "peer"),
                ("alloc", ((1 << 64) + 16,), "size"), ("alloc", (-1,), "size"), ("split", (1 << 32,), "color"), ("split", (0, 1 << 32), "key"), ("shrink", ([1 << 32],), "rank"),
                ("memory_channel", (1 << 32, memory), "peer"), ("port_channel", (1 << 32, memory, memory), "peer"), ("proxy", ((1 << 32) + 4, print), "slots")):
            self.refused(f"{text} {arguments[-1] if isinstance(arguments[-1], int) else arguments[0] if isinstance(arguments[0], int) else 1 << 32}: expected a number", *arguments, call=call)
        for call, arguments in (("broadcast", (numbers, None, "0")), ("reduce", (numbers, None, 0, None)), ("send", (numbers, 0.0)), ("alloc", ("16",)), ("proxy", (None, print))):
            self.refused("expected a whole number", *arguments, call=call)
        for call, arguments in (("window", (None,)), ("arrange", (numbers,)), ("memory_channel", (0, numbers)), ("port_channel", (0, memory, None)), ("switch_channel", (0,))):
            self.refused("expected memory of alloc() or register()", *arguments, call=call)
        self.refused("expected a function", 4, 5, call="proxy")
        with self.assertRaisesRegex(mscclpp.InvalidUsage, "rank 4294967296"):
            mscclpp.Communicator(mscclpp.UniqueId.create("127.0.0.1"), 1 << 32, 1)
        with self.assertRaisesRegex(mscclpp.InvalidUsage, "log 5: expected a function"):
            mscclpp.Communicator(mscclpp.UniqueId.create("127.0.0.1"), 0, 1, log=5)
        with self.comm.window(memory) as window, self.assertRaisesRegex(mscclpp.InvalidUsage, "rank 4294967296"):
            window.peer(1 << 32)
        memory.close()
        self.refused("memory was closed", memory, call="window", kind=mscclpp.ClosedError)

    def test_buffer_grows_during_no_call(self):
        grown = bytearray(b"1234")
        self.comm.broadcast(grown)
        grown += b"5" * 1000  # BufferError if something still held it
        self.comm.broadcast(grown)

    def test_interface_of_arrays(self):
        memory = array.array("f", [1, 2])
        address, n = memory.buffer_info()
        with_gap = {"shape": (2,), "strides": (8,), "typestr": "<f4", "data": (address, False), "version": 3}
        self.refused("not contiguous", Foreign(__array_interface__=with_gap))
        self.refused("read-only", Foreign(__array_interface__={**with_gap, "strides": None, "data": (address, True)}))
        self.refused("Python objects", Foreign(__array_interface__={**with_gap, "typestr": "|O8"}))
        for wrong in ({"shape": 2}, {"shape": (-2,)}, {"shape": ("x",)}, {"typestr": "nonsense"}, {"typestr": 4}, {"data": ("x", False)}, {"data": (address,)}, {"data": (1.5, False)}):
            self.refused("expected what the protocol has", Foreign(__array_interface__={**with_gap, "strides": None, **wrong}))
            self.refused("expected what the protocol has", Foreign(__cuda_array_interface__={**with_gap, "strides": None, **wrong}))
        self.refused("KeyError('typestr')", Foreign(__array_interface__={"shape": (2,)}))
        swapped = Foreign(__array_interface__={**with_gap, "strides": None, "typestr": ">f4"})
        self.refused("byte order", swapped)
        self.comm.all_reduce(Foreign(__array_interface__={**with_gap, "strides": (4,)}))
        self.refused("read-only", Foreign(__array_interface__={**with_gap, "strides": None, "data": bytes(8)}))
        within = Foreign(__array_interface__={**with_gap, "strides": None, "shape": (1,), "data": memory, "offset": 4})
        self.comm.all_reduce(within, scale=5.0, op=mscclpp.ReduceOp.PREMUL_SUM)  # the second of two
        self.assertEqual(memory.tolist(), [1, 10])

    def test_dlpack_of_what_has_no_format(self):
        """JAX's arrays of bfloat16 have the buffer protocol, which refuses them, and DLPack."""
        lent = self.comm.alloc(8)
        lent.write(bytes.fromhex("803f0040"))  # 1 and 2

        class Odd(mmap.mmap):  # once closed, its buffer is refused with ValueError, too
            def __dlpack_device__(self):
                return lent.__dlpack_device__()

            def __dlpack__(self, **_):
                return lent.to_dlpack("bfloat16", (2,))
        odd = Odd(-1, 1)
        odd.close()
        found = _buffers.resolve(odd, "x")
        self.assertEqual((found.code, found.address), (mscclpp.DataType.bfloat16, lent.data()))
        self.refused("closed", closed := mmap.mmap(-1, 1), call=(closed.close(), "broadcast")[1])

    def test_formats(self):
        for kind, code in {"b": 4, "B": 5, "i": 6, "I": 7, "q": 8, "Q": 9, "l": 8, "L": 9, "f": 0, "d": 3, "h": None}.items():
            self.assertEqual(_buffers.resolve(array.array(kind, [1]), "x").code, code, kind)
        self.assertEqual(_types.of_format("e", 2), mscclpp.DataType.float16)
        self.assertIsNone(_types.of_format(">f", 4))
        for name in ("bfloat16", "torch.bfloat16", mscclpp.DataType.bfloat16, 2):
            self.assertEqual(_types.data_type(name), 2)


def shared_memory():
    """Return how many bytes of memory that can be shared this process maps, and how many descriptors of such memory it has. Threads and heaps have none."""
    with open("/proc/self/maps") as f:
        mapped = [line.split()[0].split("-") for line in f if "/memfd:" in line]
    opened = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the list
            opened.append(os.readlink(f"/proc/self/fd/{name}"))
    return sum(int(end, 16) - int(begin, 16) for begin, end in mapped), sum(name.startswith("/memfd:") for name in opened)


class Ends(unittest.TestCase):
    def make(self, **named):
        return mscclpp.Communicator(mscclpp.UniqueId.create("127.0.0.1"), 0, 1, **named)

    def test_use_after_close(self):
        comm = self.make()
        comm.close()
        comm.close()
        comm.abort()
        for use in (lambda: comm.all_reduce(array.array("f", [1])), comm.barrier, comm.status, comm.dump, lambda: comm.split(0), lambda: comm.query("device"), comm.join, lambda: comm.group().__enter__()):
            with self.assertRaises(mscclpp.ClosedError):
                use()
        self.assertIn("closed", repr(comm))

    def test_use_after_abort(self):
        comm = self.make()
        comm.abort("for a reason")
        with self.assertRaises(mscclpp.ClosedError) as caught:
            comm.all_reduce(array.array("f", [1]))
        self.assertIn("for a reason", str(caught.exception))

    def test_use_before_join(self):
        comm = self.make(join=False)
        for use in (lambda: comm.all_reduce(array.array("f", [1])), lambda: comm.rank, comm.barrier):
            with self.assertRaises(mscclpp.InvalidUsage):
                use()
        with self.assertRaises(mscclpp.InProgressError):
            comm.status()
        comm.join()
        self.assertEqual(comm.rank, 0)
        comm.close()

    def test_exception_aborts(self):
        with self.assertRaises(KeyError):
            with self.make() as comm:
                raise KeyError("mine")
        with self.assertRaises(mscclpp.ClosedError) as caught:
            comm.barrier()
        self.assertIn("mine", str(caught.exception))

    def test_is_not_copied(self):
        """A copy would end the communicator when it goes."""
        import copy
        with self.make() as comm:
            for thing, text in ((comm, "neither copied nor pickled"), (comm.alloc(64), "RegisteredMemory is neither")):
                for take in (copy.copy, copy.deepcopy, pickle.dumps):
                    with self.assertRaisesRegex(TypeError, text):
                        take(thing)
            comm.barrier()

    def test_forgotten_is_closed(self):
        comm = self.make()
        handle, lib = comm.handle, _library.library()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            del comm
            gc.collect()
        self.assertEqual([w.category for w in seen], [ResourceWarning])
        self.assertEqual(lib.comm_status(handle), mscclpp.ErrorCode.InvalidUsage)

    def test_views_outlive_memory(self):
        """Views of memory show it for as long as they are there, whatever has become of the memory and of its communicator."""
        ends = {"memory": lambda comm, memory: memory.close(), "communicator": lambda comm, memory: comm.close(), "abort": lambda comm, memory: comm.abort(),
                "nothing": lambda comm, memory: None}
        for name, end in ends.items():
            comm = self.make()
            memory = comm.alloc(1 << 20)
            view = memory.view()
            second = view[10:]
            again = memory.__array_interface__["data"]
            view[12] = 7
            end(comm, memory)
            view[13] = 8
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                del comm, memory, view  # the communicator is closed, if it was not
            gc.collect()
            self.assertEqual((second[2], again[13]), (7, 8), name)
            del second, again

    def test_closed_memory_leaves_nothing(self):
        """A loop that allocates, looks at and closes memory takes no more of it, and no descriptors."""
        comm, sizes = self.make(), []
        for i in range(20):
            memory = comm.alloc(64 << 20)
            view = memory.view()
            memory.close()
            view[0] = 1
            if i > 2:  # the one before has gone
                sizes.append(shared_memory())
        comm.close()
        self.assertEqual(sizes, sizes[:1] * len(sizes))
        self.assertGreaterEqual(sizes[0][0], 64 << 20)

    def test_abort_ends_a_call_of_another_thread(self):
        one = mscclpp.UniqueId.create("127.0.0.1")
        comm, outcome = mscclpp.Communicator(one, 0, 2, join=False), []

        def join():
            try:
                comm.join()
            except mscclpp.Error as problem:
                outcome.append(problem)
        thread = threading.Thread(target=join)
        thread.start()
        comm.abort("enough")
        thread.join(300)
        self.assertEqual(len(outcome), 1, "join has not ended")

    def test_ranks_as_threads(self):
        one, sums, failures = mscclpp.UniqueId.create("127.0.0.1"), [None] * 3, []

        def rank(r):
            try:
                with mscclpp.Communicator(one, r, 3) as comm:
                    mine = array.array("i", [r + 1])
                    comm.all_reduce(mine)
                    sums[r] = mine[0]
            except Exception as problem:
                failures.append(problem)
        threads = [threading.Thread(target=rank, args=(r,)) for r in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual((failures, sums), ([], [6, 6, 6]))

    def test_log(self):
        lines = []
        with self.make(log=lambda level, text: lines.append((level, text)), settings={"log.level": "debug"}) as comm:
            comm.barrier()
        self.assertTrue(lines)
        self.assertTrue(all(0 <= level <= 3 and "\n" not in text for level, text in lines), lines)


if __name__ == "__main__":
    unittest.main(verbosity=0)
