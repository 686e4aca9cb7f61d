# onebyone serve: docker build -t onebyone . && docker run -p 8000:8000 -v pets:/state -v ./token:/run/secrets/token:ro onebyone
FROM python:3.12-slim
COPY . /source
# Only a machine without a GPU is served here, so torch comes from the constraints, which name its small build.
RUN pip install --no-cache-dir --constraint /source/constraints.txt '/source[serve]' && rm -rf /source \
    && useradd --uid 10001 --no-create-home onebyone \
    && mkdir /state && chown onebyone /state
USER onebyone
ENV OMP_NUM_THREADS=1 HOME=/tmp
VOLUME /state
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/v1/health')"]
CMD ["onebyone", "serve", "--state", "/state", "--host", "0.0.0.0", "--token-file", "/run/secrets/token"]
