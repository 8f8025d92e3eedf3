// SPDX-License-Identifier: Apache-2.0

// Command runtime-front stands between Docker and runc on machines whose root
// lacks a capability. `docker run --privileged` and `docker exec --privileged`
// name every capability that exists, and runc refuses to set one that is not in
// the caller's bounding set. The front takes those out of the container's spec,
// or of the process to be executed, and then becomes runc. It only ever asks for
// less; where root holds every capability it changes nothing.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// capabilities in the order of their bits, linux/capability.h.
var capabilities = []string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
	"SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
	"IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
	"SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
	"LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
	"WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
}

func main() {
	if err := lower(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "runtime-front:", err)
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		runc = "/usr/sbin/runc"
	}
	err = syscall.Exec(runc, append([]string{"runc"}, os.Args[1:]...), os.Environ())
	fmt.Fprintln(os.Stderr, "runtime-front: cannot start", runc, err)
	os.Exit(1)
}

// lower edits the file that runc is about to read, if this is a command that starts a process.
func lower(args []string) error {
	switch command, options := parse(args); command {
	case "create", "run":
		return edit(filepath.Join(options["bundle"], "config.json"), "process")
	case "exec":
		if file := options["process"]; file != "" {
			return edit(file, "")
		}
	}
	return nil
}

// parse finds runc's command and the values of its options --bundle and --process, in either spelling.
func parse(args []string) (command string, options map[string]string) {
	long := map[string]string{"-b": "bundle", "--bundle": "bundle", "-p": "process", "--process": "process"}
	options = map[string]string{}
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		option, known := long[name]
		switch {
		case known && command != "" && joined:
			options[option] = value
		case known && command != "" && i+1 < len(args):
			options[option] = args[i+1]
		case command == "" && (arg == "create" || arg == "run" || arg == "exec"):
			command = arg
		}
	}
	return command, options
}

// edit drops the capabilities that are not held from file, in the object under key (or at the top).
func edit(file, key string) error {
	held, err := bounding()
	if err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var spec map[string]any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // 64-bit limits must survive
	if err := decoder.Decode(&spec); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	process := spec
	if key != "" {
		process, _ = spec[key].(map[string]any)
	}
	sets, _ := process["capabilities"].(map[string]any)
	changed := false
	for name, value := range sets {
		wanted, _ := value.([]any)
		kept := []any{}
		for _, capability := range wanted {
			if text, _ := capability.(string); held[text] {
				kept = append(kept, capability)
			}
		}
		changed = changed || len(kept) != len(wanted)
		sets[name] = kept
	}
	if !changed {
		return nil
	}
	data, err = json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}

// bounding returns this process's capability bounding set.
func bounding() (map[string]bool, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(status), "\n") {
		hex, found := strings.CutPrefix(line, "CapBnd:")
		if !found {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		if err != nil {
			return nil, err
		}
		held := map[string]bool{}
		for bit, name := range capabilities {
			if mask&(1<<bit) != 0 {
				held["CAP_"+name] = true
			}
		}
		return held, nil
	}
	return nil, fmt.Errorf("no CapBnd line in /proc/self/status")
}
