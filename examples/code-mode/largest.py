# The five largest documents of this project.
found = filesystem.search_files(path=".", pattern="**/*.md", excludePatterns=["**/target/**", "**/node_modules/**", "**/.venv/**"])
paths = found["content"].splitlines()
infos = parallel([(filesystem.get_file_info, {"path": path}) for path in paths[:60]])

sizes = []
for path, info in zip(paths, infos):
    for line in info["content"].splitlines():
        if line.startswith("size: "):
            sizes.append((int(line.removeprefix("size: ")), path))

for size, path in sorted(sizes, reverse=True)[:5]:
    print(format(size, ",") + " bytes", path)
result = sum([size for size, _ in sizes])
