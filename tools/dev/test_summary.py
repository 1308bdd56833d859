"""Counts test cases of one `bazel test`: test_summary.py BAZEL_STATUS BUILD_EVENT_JSON_FILE

Reads Bazel's build events, and for each test target the XML report that GoogleTest wrote. Prints
the failed and the skipped cases and, last, `N passed, N failed` (and `, N skipped` if there are
any). A target without a report, because it did not build or died, counts as one case.
Exits with 1 when anything failed or nothing ran.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


@dataclasses.dataclass
class Counts:
    passed: int = 0
    failed: list[str] = dataclasses.field(default_factory=list)
    skipped: list[str] = dataclasses.field(default_factory=list)


def count_report(label: str, root: ElementTree.Element, counts: Counts) -> None:
    """Adds the cases of one XML report."""
    for case in root.iter("testcase"):
        name = f"{label} {case.get('classname', '')}.{case.get('name', '')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            counts.failed.append(name)
        elif skipped is not None or case.get("result") == "skipped":
            text = (skipped.get("message") or skipped.text or "") if skipped is not None else ""
            # GoogleTest puts the place on the first line and the reason below.
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            reason = " ".join(lines[1:] or lines) or "no reason given"
            counts.skipped.append(f"{name}: {reason}")
        elif case.get("status") == "notrun":
            counts.skipped.append(f"{name}: disabled")
        else:
            counts.passed += 1


def count_target(label: str, status: str, reports: list[str], counts: Counts) -> None:
    """Adds the cases of one test target with Bazel's verdict on it."""
    failed_before = len(counts.failed)
    cases = 0
    read = 0
    for path in reports:
        try:
            root = ElementTree.parse(path).getroot()
        except (OSError, ElementTree.ParseError):
            continue
        read += 1
        cases += sum(1 for _ in root.iter("testcase"))
        count_report(label, root, counts)
    if status == "PASSED":
        if read == 0:
            counts.passed += 1
        elif cases == 0:
            counts.failed.append(f"{label} (holds no test case)")
    elif len(counts.failed) == failed_before:
        counts.failed.append(f"{label} ({status.lower().replace('_', ' ')})")


def read_events(lines: list[str]) -> tuple[set[str], dict[str, str], dict[str, list[str]]]:
    """Labels of tests that failed to build or ran, and the status and reports of those that ran."""
    tests: set[str] = set()
    built: set[str] = set()
    statuses: dict[str, str] = {}
    reports: dict[str, list[str]] = {}
    for line in lines:
        event = json.loads(line)
        identity = event.get("id", {})
        if "targetConfigured" in identity:
            if event.get("configured", {}).get("targetKind", "").endswith("_test rule"):
                tests.add(identity["targetConfigured"]["label"])
        elif "targetCompleted" in identity and event.get("completed", {}).get("success"):
            built.add(identity["targetCompleted"]["label"])
        elif "testResult" in identity and "testResult" in event:
            label = identity["testResult"]["label"]
            result = event["testResult"]
            statuses[label] = result.get("status", "NO_STATUS")
            if identity["testResult"].get("attempt", 1) > 1:
                reports.pop(label, None)
            reports.setdefault(label, [])
            for output in result.get("testActionOutput", []):
                if output.get("name") == "test.xml":
                    reports[label].append(urllib.parse.urlparse(output.get("uri", "")).path)
        elif "testSummary" in identity and "testSummary" in event:
            label = identity["testSummary"]["label"]
            statuses[label] = event["testSummary"].get("overallStatus", "NO_STATUS")
    # A test that was built and has no result was left out by a tag filter.
    return (tests - built) | set(statuses), statuses, reports


def summarize(bazel_status: int, lines: list[str]) -> tuple[Counts, str]:
    """The counts, and the final line."""
    counts = Counts()
    tests, statuses, reports = read_events(lines)
    for label in sorted(tests):
        count_target(label, statuses.get(label, "FAILED_TO_BUILD"), reports.get(label, []), counts)
    if bazel_status != 0 and not counts.failed:
        counts.failed.append(f"bazel ended with status {bazel_status}")
    final = f"{counts.passed} passed, {len(counts.failed)} failed"
    if counts.skipped:
        final += f", {len(counts.skipped)} skipped"
    return counts, final


def main(arguments: list[str]) -> int:
    bazel_status, path = int(arguments[0]), arguments[1]
    with open(path, encoding="utf-8") as events:
        lines = [line for line in events if line.strip()]
    counts, final = summarize(bazel_status, lines)
    for case in counts.skipped:
        print(f"skipped {case}")
    for case in counts.failed:
        print(f"failed {case}")
    print(final, flush=True)
    return 1 if counts.failed or counts.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
