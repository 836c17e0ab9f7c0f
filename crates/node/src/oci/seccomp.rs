//! The system calls that a container with `seccompProfile: RuntimeDefault` may not make.
//!
//! Those that change the machine or look into others, as the default profiles of container engines have it. Here they
//! are the ones that are listed; what the kernel learns tomorrow is allowed.

use serde_json::{Value, json};

const DENIED: [&str; 57] = [
    "acct",
    "add_key",
    "bpf",
    "clock_adjtime",
    "clock_settime",
    "create_module",
    "delete_module",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "get_kernel_syms",
    "init_module",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "ioperm",
    "iopl",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "lookup_dcookie",
    "mbind",
    "mount",
    "mount_setattr",
    "move_mount",
    "move_pages",
    "name_to_handle_at",
    "nfsservctl",
    "open_by_handle_at",
    "open_tree",
    "perf_event_open",
    "pivot_root",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "query_module",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "request_key",
    "set_mempolicy",
    "setns",
    "settimeofday",
    "stime",
    "swapoff",
    "swapon",
    "sysfs",
    "_sysctl",
    "umount",
    "umount2",
    "unshare",
    "uselib",
    "userfaultfd",
    "ustat",
];

/// The namespace flags of `clone`.
const CLONE_NAMESPACES: [u64; 7] =
    [0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// The profile.
pub fn default_profile() -> Value {
    let mut calls = vec![
        json!({"names": &DENIED[..], "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM}),
        // Its flags are behind a pointer, where they can't be seen: programs try `clone` then.
        json!({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS}),
    ];
    // One comparison can't say "any of them".
    calls.extend(CLONE_NAMESPACES.iter().map(|flag| {
        let args = json!([{"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"}]);
        json!({"names": ["clone"], "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM, "args": args})
    }));
    let architectures = match std::env::consts::ARCH {
        "x86_64" => json!(["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]),
        _ => json!(["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"]),
    };
    json!({"defaultAction": "SCMP_ACT_ALLOW", "architectures": architectures, "syscalls": calls})
}
